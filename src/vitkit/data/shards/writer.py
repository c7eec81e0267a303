"""A data set → shards with an index, and back into class folders.

Every image is decoded once on the way: what is in a shard can be read. The images of train are laid down shuffled, so
that any few shards hold a bit of everything; those of val and test in their order, in which they are read. The same
data set gives the same bytes.
"""

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from vitkit.data.dataset import Dataset, Split
from vitkit.data.decode import SUFFIXES
from vitkit.data.fingerprint import STAMP_BYTES, hash_content
from vitkit.data.loader import pixels_of
from vitkit.data.pipeline import CORRUPT_LIMIT, CorruptionBudget, Progress, threaded_map
from vitkit.data.rng import permutation
from vitkit.data.shards.encode import as_file
from vitkit.data.shards.index import INDEX, Part, write_index
from vitkit.data.shards.reader import Names, Rows, Shard
from vitkit.data.shards.shard_files import WRITERS, Writer
from vitkit.errors import CorruptImageError, DataError, UnknownNameError, UsageError, WorkError

SHARD_SIZE = 256 * 10**6


@dataclass(frozen=True)
class Packed:
    out: Path
    images: int
    size: int  # bytes
    shards: int
    left_out: tuple[tuple[str, str], ...]  # (name, reason)


@dataclass(frozen=True)
class _Ready:
    """An image on its way into a shard."""

    content: bytes
    ending: str
    stamp: bytes
    name: str


def pack(
    data: Dataset,
    out: str | Path,
    *,
    to: str = "tar",
    shard_size: int = SHARD_SIZE,
    limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
) -> Packed:
    """Shards of at most `shard_size` bytes in the folder `out`, and their index. `limit`: of corrupt images."""
    if to not in WRITERS:
        raise UnknownNameError("format of shards", to, WRITERS)
    folder, total = _new_folder(out), sum(map(len, data.splits.values()))
    corrupt, shards, parts = CorruptionBudget(total, limit), list[tuple[str, Shard]](), dict[str, Part]()
    done = 0

    def seen() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    with _undone_on_error(folder):
        for name, split in data.splits.items():
            writer = WRITERS[to](folder, name, shard_size, len(shards), data)
            order = permutation(0, 0, len(split)) if name == "train" else np.arange(len(split))
            parts[name] = _pack_split(split, order, writer, corrupt, seen)
            shards += [(name, shard) for shard in writer.shards]
        if all(not len(part.labels) for part in parts.values()):
            raise DataError(f"{data.name}: none of its images can be packed")
        head = {
            "name": data.name,
            "format": to,
            "class_names": list(data.class_names),
            "named": data.named,
            "arrays": _shape(data),
            "left_out": [{"name": n, "reason": r} for n, r in corrupt.found.items()],
        }
        write_index(folder, head, shards, {name: part for name, part in parts.items() if len(part.labels)})
    size = sum(shard.size for _, shard in shards)
    return Packed(folder, sum(len(p.labels) for p in parts.values()), size, len(shards), tuple(corrupt.found.items()))


def unpack(data: Dataset, out: str | Path, *, limit: float = CORRUPT_LIMIT, progress: Progress | None = None) -> Packed:
    """Class folders, below folders of splits where there are several, of the images as they are."""
    folder, total = _new_folder(out), sum(map(len, data.splits.values()))
    corrupt, taken = CorruptionBudget(total, limit), set[Path]()
    size = 0
    for name, split in data.splits.items():
        root = folder / name if len(data.splits) > 1 or name != "train" else folder
        for index, ready in enumerate(threaded_map(_reader(split), len(split))):
            if isinstance(ready, CorruptImageError):
                corrupt.add(ready)
                continue
            path = _free(root / _folder_name(data.class_names[split.labels[index]]), ready, taken)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(ready.content)
            size += len(ready.content)
            if progress:
                progress(len(taken), total)
    return Packed(folder, len(taken), size, 0, tuple(corrupt.found.items()))


def _pack_split(split: Split, order: np.ndarray, writer: Writer, corrupt: CorruptionBudget, seen: Any) -> Part:
    count = len(split)
    kept, names = np.zeros(count, bool), [""] * count
    shard, place, size = (np.zeros(count, np.int64) for _ in range(3))
    crc, stamps = np.zeros(count, np.uint32), np.zeros((count, STAMP_BYTES), np.uint8)
    read = _reader(split)
    for index, ready in zip(order.tolist(), threaded_map(lambda i: read(int(order[i])), count), strict=True):
        seen()
        if isinstance(ready, CorruptImageError):
            corrupt.add(ready)
            continue
        kept[index], names[index] = True, ready.name
        shard[index], place[index] = writer.add(ready.content, ready.ending, ready.name, int(split.labels[index]))
        size[index], crc[index] = len(ready.content), zlib.crc32(ready.content)
        stamps[index] = np.frombuffer(ready.stamp, np.uint8)
    writer.close()
    rows = Rows(shard.astype(np.int32), place, size, Names.of(names), crc, stamps).take(np.flatnonzero(kept))
    return Part(split.labels[kept], rows)


def _reader(split: Split) -> Any:
    def read(index: int) -> _Ready | CorruptImageError:
        name = split.images.name(index)
        try:
            encoded = split.images[index]
            content, ending = as_file(encoded, name)
        except CorruptImageError as error:
            return error
        return _Ready(content, ending, hash_content(encoded), "/".join(PurePath(name).parts[-2:]))

    return read


def _shape(data: Dataset) -> list[int] | None:
    """Of an image, where all are arrays of one shape."""
    pixels = [pixels_of(split) for split in data.splits.values()]
    shapes = {p.shape[1:] if p is not None else None for p in pixels}
    shape = shapes.pop()
    return list(shape) if shape is not None and not shapes else None


def _new_folder(out: str | Path) -> Path:
    folder = Path(out).expanduser()
    if folder.is_file():
        raise UsageError(f"{folder} is a file: choose another folder")
    if folder.exists() and any(folder.iterdir()):
        rest = ", of a packing that was broken off" if _unfinished(folder) else ""
        raise UsageError(f"{folder} is not empty{rest}: remove it, or choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}; choose another") from error
    return folder


def _unfinished(folder: Path) -> bool:
    return not (folder / INDEX).exists() and any(folder.glob("*.tmp"))


@contextlib.contextmanager
def _undone_on_error(folder: Path) -> Iterator[None]:
    """Shards without an index are of no use: what stops the packing removes them."""
    try:
        yield
    except BaseException as error:
        for path in folder.iterdir():
            path.unlink()
        if isinstance(error, OSError):
            raise WorkError(f"cannot write into {folder}: {error.strerror}; free space or choose another") from error
        raise


def _folder_name(label: str) -> str:
    """A class name that a folder can have: it must not lead elsewhere."""
    safe = label.replace("/", "_").replace("\\", "_").replace("\0", "_")
    return f"_{safe}" if safe in ("", ".", "..") or safe.startswith((".", "__")) else safe


def _free(folder: Path, ready: _Ready, taken: set[Path]) -> Path:
    """Its own name, with an ending that says what it is, and a number where the name is taken."""
    own = PurePath(PurePath(ready.name).name.replace("\\", "_").lstrip(".") or "image")
    own = own if own.suffix.lower() in SUFFIXES else own.with_name(f"{own.name}.{ready.ending}")
    path, number = folder / own.name, 1
    while path in taken:
        number += 1
        path = folder / f"{own.stem}-{number}{own.suffix}"
    taken.add(path)
    return path
