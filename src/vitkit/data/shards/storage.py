"""Bytes of files here or in an object store: what there is, and ranges of it, asked for again where a network fails.

What is wrong with the data and what is wrong with the way to them are told apart. A file that is not there, or ends too
early, is an answer: it stays so, and is returned as `Lost`, to be counted. A connection that breaks or does not answer
is asked for again, with growing pauses, and then ends the work: going on without these samples would make the order of
the rest depend on the weather.
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

from vitkit.errors import DataError, MissingExtraError, VitkitError, WorkError

PAUSES = (0.5, 1.0, 2.0, 4.0)  # seconds before each further try
TIMEOUT = 60.0  # seconds for the ranges of one batch
THREADS = 16  # for stores whose client takes one request at a time

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
_PATTERN = re.compile(r"[*?\[]")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Stored:
    """A file as it was found: `state` changes when its content does, as far as the store tells."""

    path: str
    size: int
    state: str


@dataclass(frozen=True)
class Lost:
    """In the place of bytes that are not there to be had."""

    reason: str


@dataclass(frozen=True)
class Range:
    path: str
    start: int
    end: int


def is_remote(path: str) -> bool:
    return "://" in path


def is_pattern(path: str) -> bool:
    return bool(_PATTERN.search(path) or _BRACES.search(path))


def beside(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder) / name)


def find(pattern: str) -> list[str]:
    """The files of a pattern, sorted. Of {0000..0099} every one is named, whether it is there or not."""
    found: list[str] = []
    for each in _numbered(pattern):
        if not _PATTERN.search(each):
            found.append(each)
        elif is_remote(each):
            found += _glob(each)
        else:
            found += glob(each, recursive=True)
    return sorted(found)


def _glob(pattern: str) -> list[str]:
    fs, inner = _filesystem(pattern)
    return [fs.unstrip_protocol(name) for name in _again(lambda: fs.glob(inner), pattern)]


def look(paths: Sequence[str]) -> list[Stored | None]:
    """What is known of each without reading it; None: it is not there."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(_look, paths))


def read_whole(path: str) -> bytes | Lost:
    if not is_remote(path):
        return _local(Path(path).read_bytes)
    fs, inner = _filesystem(path)
    try:
        return bytes(_again(lambda: fs.cat_file(inner), path))
    except FileNotFoundError:
        return Lost("is missing")


def read_ranges(ranges: Sequence[Range]) -> list[bytes | Lost]:
    """All at once where they come over a network; each of its full length."""
    if not ranges:
        return []
    contents = _fetch(ranges) if is_remote(ranges[0].path) else [_slice(r) for r in ranges]
    return [c if isinstance(c, Lost) else _whole(c, r) for c, r in zip(contents, ranges, strict=True)]


def open_file(path: str) -> Any:
    """For reading from beginning to end, or from its end, as parquet's readers do."""
    if not is_remote(path):
        return open(path, "rb")
    fs, inner = _filesystem(path)
    return _again(lambda: fs.open(inner, "rb", block_size=2**23), path)


def retried(work: Callable[[], Result], path: str) -> Result:
    """`work` reads the file, whole or in parts, and can begin anew."""
    return _again(work, path) if is_remote(path) else work()


def _numbered(pattern: str) -> list[str]:
    braces = _BRACES.search(pattern)
    if not braces:
        return [pattern]
    first, last = braces.groups()
    numbers = range(int(first), int(last) + 1)
    if len(numbers) > 10_000_000:
        raise DataError(f"{pattern}: names {len(numbers):,} files; check the numbers")
    each = (pattern[: braces.start()] + str(n).zfill(len(first)) + pattern[braces.end() :] for n in numbers)
    return [path for part in each for path in _numbered(part)]


def _look(path: str) -> Stored | None:
    try:
        if not is_remote(path):
            state = os.stat(path)
            return Stored(path, state.st_size, f"{os.path.abspath(path)} {state.st_mtime_ns}")
        fs, inner = _filesystem(path)
        info = _again(lambda: fs.info(inner), path)
    except FileNotFoundError:
        return None
    marks = (info.get(key) for key in ("ETag", "etag", "blob_id", "md5Hash", "LastModified", "mtime"))
    return Stored(path, int(info["size"] or 0), f"{path} {next(filter(None, marks), '')}")


def _slice(wanted: Range) -> bytes | Lost:
    def read() -> bytes:
        with open(wanted.path, "rb") as file:
            file.seek(wanted.start)
            return file.read(wanted.end - wanted.start)

    return _local(read)


def _local(read: Callable[[], bytes]) -> bytes | Lost:
    try:
        return read()
    except FileNotFoundError:
        return Lost("is missing")
    except OSError as error:
        return Lost(f"cannot be read ({error.strerror})")


def _whole(content: bytes, wanted: Range) -> bytes | Lost:
    missing = wanted.end - wanted.start - len(content)
    return Lost(f"ends {missing:,} bytes too early") if missing > 0 else content


def _fetch(ranges: Sequence[Range]) -> list[bytes | Lost]:
    """Only what failed is asked for again."""
    fs, _ = _filesystem(ranges[0].path)
    found: dict[int, bytes | Lost] = {}

    def missing() -> None:
        wanted = [i for i in range(len(ranges)) if i not in found]
        failed = None
        for i, answer in zip(wanted, _answers(fs, [ranges[i] for i in wanted]), strict=True):
            if isinstance(answer, FileNotFoundError):
                found[i] = Lost("is missing")
            elif isinstance(answer, Exception):
                failed = answer
            else:
                found[i] = bytes(answer)
        if failed:
            raise failed

    _again(missing, ranges[0].path)
    return [found[i] for i in range(len(ranges))]


def _answers(fs: Any, ranges: Sequence[Range]) -> list[Any]:
    """For each range its bytes or the exception that it met."""
    paths, starts, ends = zip(*((fs._strip_protocol(r.path), r.start, r.end) for r in ranges), strict=True)
    if fs.async_impl:
        from fsspec.asyn import sync

        parts = (list(paths), list(starts), list(ends))
        return list(sync(fs.loop, fs._cat_ranges, *parts, on_error="return", timeout=TIMEOUT))

    def one(place: int) -> Any:
        try:
            return fs.cat_file(paths[place], start=starts[place], end=ends[place])
        except Exception as error:  # each store's client raises its own
            return error

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(len(ranges))))


def _filesystem(path: str) -> tuple[Any, str]:
    """Of this process: after a fork fsspec makes new clients, so none is kept here."""
    protocol = path.split("://")[0]
    package, extra = CLIENTS.get(protocol, ("fsspec", "shards"))
    try:
        import fsspec

        fs, inner = fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise MissingExtraError(f"reading {protocol}://", package, extra) from error
    except ValueError as error:
        raise DataError(f"{path}: {error}; known are {', '.join(f'{p}://' for p in CLIENTS)}") from error
    return fs, inner


def _again(work: Callable[[], Result], path: str) -> Result:
    for pause in (*PAUSES, None):
        try:
            return work()
        except (FileNotFoundError, VitkitError):
            raise
        except PermissionError as error:
            raise DataError(f"{path}: not allowed to read it ({_said(error)}); check the credentials") from error
        except Exception as error:  # each store's client raises its own
            if pause is None:
                raise WorkError(
                    f"{path}: cannot be read after {len(PAUSES) + 1} tries ({_said(error)}); "
                    "go on with --resume once it answers again"
                ) from error
            time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
