"""Files that are either the old or the new one, never half of one."""

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
_DAY = 24 * 60 * 60.0  # nobody writes that long at one file


def write_atomic(path: Path, content: bytes) -> None:
    """Temporary file, flush to the disk, rename: a crash at any instant leaves the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{_node()}-{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):  # a folder that cannot be written may not let us clean up either
            temporary.unlink(missing_ok=True)
        raise WorkError(f"cannot write {path}: {error.strerror}; free space or choose another folder") from error


def remove_stale_temporaries(folder: Path) -> list[Path]:
    """Remove what writers that were killed left behind; returns what was removed.

    Only files that `write_atomic` names so, and none whose writer may be at work: it lives on this machine, or wrote
    from another one within the last day. To be called before this process writes into the folder itself.
    """
    torn = [path for path in folder.glob(".*.tmp") if (m := _TEMPORARY.fullmatch(path.name)) and _abandoned(path, m)]
    for path in torn:
        path.unlink(missing_ok=True)
    return torn


def _abandoned(path: Path, named: re.Match[str]) -> bool:
    pid = int(named["pid"])
    if named["node"] == _node():
        return pid == os.getpid() or not _lives(pid)  # our own number: of an earlier process that had it
    try:
        return time.time() - path.stat().st_mtime > _DAY
    except FileNotFoundError:  # its writer has just renamed it
        return False


def _lives(pid: int) -> bool:
    if os.name != "posix":  # elsewhere the question itself would end the process
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


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def sha256(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with open(content, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(folder: Path) -> None:
    """The rename itself is only durable once the folder is on the disk too."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
