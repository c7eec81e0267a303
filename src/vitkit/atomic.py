"""Atomic file writes: a file is either the old or the new version, never a part of one."""

import contextlib
import hashlib
import json
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

from vitkit.errors import WorkError

_TEMPORARY = re.compile(r"\..+\.(?P<node>[^.]*)-(?P<pid>\d+)\.tmp")
_DAY = 24 * 60 * 60.0  # longer than any write takes


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a temporary file, flush it to disk and rename it. A crash leaves the old file or the new one.

    Text is written as UTF-8. Bytes of file names that are not UTF-8, which Python holds as surrogates, become escapes
    such as \\udce9: JSON files give the name back.
    """
    content = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{_node()}-{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):  # the folder may not allow deleting either
            temporary.unlink(missing_ok=True)
        raise WorkError(f"cannot write {path}: {error.strerror}; free space or choose another folder") from error


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def remove_stale_temporaries(folder: Path) -> list[Path]:
    """Remove temporary files of killed writers and return their paths. Call it before writing into the folder.

    Files of other programs stay, and so do files whose writer may still run: a live process of this machine, or
    another machine within the last day.
    """
    matches = ((path, _TEMPORARY.fullmatch(path.name)) for path in folder.glob(".*.tmp"))
    stale = [path for path, match in matches if match and _is_stale(path, match)]
    for path in stale:
        path.unlink(missing_ok=True)
    return stale


def sha256(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with open(content, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_stale(path: Path, match: re.Match[str]) -> bool:
    pid = int(match["pid"])
    if match["node"] == _node():
        return pid == os.getpid() or not _is_running(pid)  # our own id: an earlier process had it
    try:
        return time.time() - path.stat().st_mtime > _DAY
    except FileNotFoundError:  # its writer has just renamed it
        return False


def _is_running(pid: int) -> bool:
    if os.name != "posix":  # on Windows, os.kill would end the process
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _node() -> str:
    return platform.node().replace(".", "_").replace("/", "_")


def _sync_folder(folder: Path) -> None:
    """Flush the folder to disk, which makes a rename durable."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
