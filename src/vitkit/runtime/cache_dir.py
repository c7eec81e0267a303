"""Find and prune the folders in which vitkit keeps files that can be made or downloaded again."""

import contextlib
import os
import shutil
from pathlib import Path

from vitkit.atomic import write_atomic
from vitkit.errors import WorkError


def cache_folder() -> Path:
    """Return $VITKIT_CACHE, else `vitkit` in the user's cache folder."""
    if chosen := os.environ.get("VITKIT_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vitkit"


def data_folder(data_dir: str | Path | None) -> Path:
    """Return the folder of built-in data sets: `data_dir` if given, else $VITKIT_DATA, else `data` in the cache."""
    if chosen := data_dir or os.environ.get("VITKIT_DATA"):
        return Path(chosen).expanduser()
    return cache_folder() / "data"


def write_cache_file(path: Path, content: bytes) -> None:
    """Write a file of the cache. If the disk refuses, do nothing: a cache is not worth an error."""
    with contextlib.suppress(OSError, WorkError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


def prune(folder: Path, keep: Path, limit: int) -> None:
    """Remove the least recently used files and folders until the rest takes at most `limit` bytes.

    `keep` and hidden (temporary) files are never removed.
    """
    entries = [path for path in folder.iterdir() if path != keep and not path.name.startswith(".")]
    sizes = {path: _size(path) for path in entries}
    total = sum(sizes.values()) + _size(keep)
    for path in sorted(entries, key=lambda path: path.stat().st_mtime):
        if total <= limit:
            break
        total -= sizes[path]
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
