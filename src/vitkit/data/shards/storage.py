"""Read files and byte ranges from the local disk or an object store, with retries.

Missing data and a failing network are handled differently. A file that is missing or too short stays so: a
`ReadFailure` is returned and counted. A connection that breaks is retried with growing pauses and then ends the run,
because sample order must not depend on network failures.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, TypeVar

from vitkit.data.dataset import ReadFailure
from vitkit.errors import DataError, MissingExtraError, VitkitError, WorkError

PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before each retry
TIMEOUT = 60.0  # seconds for the ranges of one batch
THREADS = 16  # for stores whose client handles one request at a time
MAX_FILES = 10_000_000  # that a pattern such as {0000..9999} may name

# protocol → (package, extra)
CLIENTS = {
    "s3": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
    "hf": ("huggingface_hub", "hub"),
    "http": ("aiohttp", "shards"),
    "https": ("aiohttp", "shards"),
}

_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")
_WILDCARD = re.compile(r"[*?\[]")

Result = TypeVar("Result")


@dataclass(frozen=True)
class FileStat:
    """A file that exists. `state` changes when its content does, as far as the store reports it."""

    path: str
    size: int
    state: str


@dataclass(frozen=True)
class ByteRange:
    path: str
    start: int
    end: int


def is_remote(path: str) -> bool:
    return "://" in path


def is_pattern(path: str) -> bool:
    return bool(_WILDCARD.search(path) or _BRACES.search(path))


def join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder) / name)


def find_files(pattern: str) -> list[str]:
    """Return the files of a pattern, sorted. {0000..0099} names every number, whether the file exists or not."""
    found: list[str] = []
    for each in _expand_braces(pattern):
        if not _WILDCARD.search(each):
            found.append(each)
        elif is_remote(each):
            fs, inner = _filesystem(each)
            found += [fs.unstrip_protocol(name) for name in _retry(lambda: fs.glob(inner), each)]  # noqa: B023  # called at once
        else:
            found += glob(each, recursive=True)
    return sorted(found)


def stat_files(paths: Sequence[str]) -> list[FileStat | None]:
    """Return size and state of each file; None if it is missing."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(_stat, paths))


def read_file(path: str) -> bytes | ReadFailure:
    if not is_remote(path):
        return _read_local(path, Path(path).read_bytes)
    fs, inner = _filesystem(path)
    try:
        return bytes(_retry(lambda: fs.cat_file(inner), path))
    except FileNotFoundError:
        return ReadFailure(path, "is missing")


def read_ranges(ranges: Sequence[ByteRange]) -> list[bytes | ReadFailure]:
    """Return the bytes of each range. Ranges of remote files are requested concurrently."""
    if not ranges:
        return []
    contents = _read_remote(ranges) if is_remote(ranges[0].path) else [_read_local_range(r) for r in ranges]
    return [c if isinstance(c, ReadFailure) else _check_length(c, r) for c, r in zip(contents, ranges, strict=True)]


def open_file(path: str) -> Any:
    """Open a file for reading from its beginning, or from its end as parquet readers do."""
    if not is_remote(path):
        return open(path, "rb")
    fs, inner = _filesystem(path)
    return _retry(lambda: fs.open(inner, "rb", block_size=2**23), path)


def retry_remote(work: Callable[[], Result], path: str) -> Result:
    """Return the result of `work`, which reads the file. Call it again if a remote store fails."""
    return _retry(work, path) if is_remote(path) else work()


def _expand_braces(pattern: str) -> list[str]:
    braces = _BRACES.search(pattern)
    if not braces:
        return [pattern]
    first, last = braces.groups()
    numbers = range(int(first), int(last) + 1)
    if len(numbers) > MAX_FILES:
        raise DataError(f"{pattern}: names {len(numbers):,} files; check the numbers")
    each = (pattern[: braces.start()] + str(n).zfill(len(first)) + pattern[braces.end() :] for n in numbers)
    return [path for part in each for path in _expand_braces(part)]


def _stat(path: str) -> FileStat | None:
    try:
        if not is_remote(path):
            state = os.stat(path)
            return FileStat(path, state.st_size, f"{os.path.abspath(path)} {state.st_mtime_ns}")
        fs, inner = _filesystem(path)
        info = _retry(lambda: fs.info(inner), path)
    except FileNotFoundError:
        return None
    versions = (info.get(key) for key in ("ETag", "etag", "blob_id", "md5Hash", "LastModified", "mtime"))
    return FileStat(path, int(info["size"] or 0), f"{path} {next(filter(None, versions), '')}")


def _read_local_range(wanted: ByteRange) -> bytes | ReadFailure:
    def read() -> bytes:
        with open(wanted.path, "rb") as file:
            file.seek(wanted.start)
            return file.read(wanted.end - wanted.start)

    return _read_local(wanted.path, read)


def _read_local(path: str, read: Callable[[], bytes]) -> bytes | ReadFailure:
    try:
        return read()
    except FileNotFoundError:
        return ReadFailure(path, "is missing")
    except OSError as error:
        return ReadFailure(path, f"cannot be read ({error.strerror})")


def _check_length(content: bytes, wanted: ByteRange) -> bytes | ReadFailure:
    missing = wanted.end - wanted.start - len(content)
    return ReadFailure(wanted.path, f"ends {missing:,} bytes too early") if missing > 0 else content


def _read_remote(ranges: Sequence[ByteRange]) -> list[bytes | ReadFailure]:
    """Return the bytes or the failure of each range. Ranges whose request failed are requested again."""
    fs, _ = _filesystem(ranges[0].path)
    found: dict[int, bytes | ReadFailure] = {}

    def request_missing() -> None:
        wanted = [i for i in range(len(ranges)) if i not in found]
        failed = None
        for i, answer in zip(wanted, _request(fs, [ranges[i] for i in wanted]), strict=True):
            if isinstance(answer, FileNotFoundError):
                found[i] = ReadFailure(ranges[i].path, "is missing")
            elif isinstance(answer, Exception):
                failed = answer
            else:
                found[i] = bytes(answer)
        if failed:
            raise failed

    _retry(request_missing, ranges[0].path)
    return [found[i] for i in range(len(ranges))]


def _request(fs: Any, ranges: Sequence[ByteRange]) -> list[Any]:
    """Return for each range its bytes, or the exception that it raised."""
    paths, starts, ends = zip(*((fs._strip_protocol(r.path), r.start, r.end) for r in ranges), strict=True)
    if fs.async_impl:
        from fsspec.asyn import sync

        parts = (list(paths), list(starts), list(ends))
        return list(sync(fs.loop, fs._cat_ranges, *parts, on_error="return", timeout=TIMEOUT))

    def request(i: int) -> Any:
        try:
            return fs.cat_file(paths[i], start=starts[i], end=ends[i])
        except Exception as error:  # each store's client raises its own
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(request, range(len(ranges))))


def _filesystem(path: str) -> tuple[Any, str]:
    """Return fsspec's client for a path, and the path in it. fsspec caches clients, and makes new ones after a fork."""
    protocol = path.split("://")[0]
    package, extra = CLIENTS.get(protocol, ("fsspec", "shards"))
    try:
        import fsspec

        fs, inner = fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise MissingExtraError(f"reading {protocol}://", package, extra) from error
    except ValueError as error:
        raise DataError(f"{path}: {error}; supported are {', '.join(f'{p}://' for p in CLIENTS)}") from error
    return fs, inner


def _retry(work: Callable[[], Result], path: str) -> Result:
    for pause in (*PAUSES, None):
        try:
            return work()
        except (FileNotFoundError, VitkitError):
            raise
        except PermissionError as error:
            raise DataError(f"{path}: permission denied ({_one_line(error)}); check the credentials") from error
        except Exception as error:  # each store's client raises its own
            if pause is None:
                raise WorkError(
                    f"{path}: cannot be read after {len(PAUSES) + 1} attempts ({_one_line(error)}); "
                    "continue with --resume when the store is reachable"
                ) from error
            time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
