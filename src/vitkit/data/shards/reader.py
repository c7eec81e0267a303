"""ImageSource inside of shards: index → bytes, whichever process asks, in whatever order.

A shard is a tar or a parquet file that holds many images. Where each of them lies is known beforehand (`index.py` for
shards that `vitkit pack` wrote, `scan.py` for others), so a sample is a range of bytes in a tar, or a row in a row
group. A batch asks for all of its ranges at once. Nothing is read in advance, nothing has a state: which rank or worker
reads which sample follows from the order of samples (`loader.py`) alone.
"""

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from vitkit.data.dataset import ImageSource, ImageSubset, RawImage
from vitkit.data.shards.storage import Lost, Range, Stored, is_remote, open_file, read_ranges, retried
from vitkit.errors import CorruptImageError

# A chunk is what lies together on the disk; an epoch mixes windows of chunks (`windows.py`). Samples of a tar are read
# one by one, from anywhere: the window only keeps a disk's own cache useful. A row group is read whole, and has to be
# held until its window is over.
TAR_CHUNK, TAR_WINDOW = 2**24, 2**34
PARQUET_WINDOW = 2**29
HELD = 3 * PARQUET_WINDOW  # the window that ends, the one that begins, and room for large row groups

MERGED_GAP, MERGED_MOST = 2**14, 2**24  # remote ranges nearer than this are one request, up to this size


@dataclass(frozen=True)
class Shard:
    path: str
    samples: int
    size: int  # bytes, as it was packed or scanned
    sha256: str = ""  # "": nobody has computed it
    groups: tuple[int, ...] = ()  # parquet: how many rows each row group has
    stored: Stored | None = None  # as it is found now; None: it is not there

    @property
    def whole(self) -> bool:
        return self.stored is not None and self.stored.size == self.size


class Names(Sequence[str]):
    """Many short texts in little memory."""

    def __init__(self, text: bytes, ends: np.ndarray) -> None:
        self.text, self.ends = text, ends

    @classmethod
    def of(cls, names: Sequence[str]) -> "Names":
        encoded = [name.encode(errors="surrogateescape") for name in names]
        return cls(b"".join(encoded), np.cumsum([len(e) for e in encoded], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        begin = int(self.ends[index - 1]) if index else 0
        return self.text[begin : int(self.ends[index])].decode(errors="surrogateescape")


@dataclass(frozen=True)
class Rows:
    """Where each image lies."""

    shard: np.ndarray  # int32, into the shards
    place: np.ndarray  # int64: the first byte in a tar, the row in a parquet file
    size: np.ndarray  # int64, bytes
    names: Sequence[str]  # CLASS/FILE, as it was called before it was packed
    crc: np.ndarray | None = None  # uint32, CRC-32 of the image's bytes
    hashes: np.ndarray | None = None  # (N, 16) bytes, see fingerprint.py

    def take(self, rows: np.ndarray) -> "Rows":
        some = [None if c is None else c[rows] for c in (self.crc, self.hashes)]
        names = [self.names[i] for i in rows.tolist()]
        return Rows(self.shard[rows], self.place[rows], self.size[rows], Names.of(names), *some)


@dataclass(frozen=True, eq=False)
class ShardImages:
    """`column`: that of the images in parquet; "" for tars. `packed`: each image was decoded when it was packed."""

    shards: Sequence[Shard]
    rows: Rows
    column: str = ""
    packed: bool = False

    def __len__(self) -> int:
        return len(self.rows.shard)

    def __getitem__(self, index: int, /) -> bytes:
        (content,) = self.many(np.array([index]))
        if isinstance(content, CorruptImageError):
            raise content
        return content

    def name(self, index: int, /) -> str:
        return f"{self.shards[self.rows.shard[index]].path}/{self.rows.names[index]}"

    def stored_hash(self, index: int) -> bytes | None:
        """As it was packed or scanned, unless something has happened to its shard since."""
        if self.rows.hashes is None or not self.shards[self.rows.shard[index]].whole:
            return None
        return self.rows.hashes[index].tobytes()

    def many(self, indices: np.ndarray) -> list[bytes | CorruptImageError]:
        """Together, which is faster than one after the other; an error stands where its image would."""
        contents = self._from_parquet(indices) if self.column else self._from_tars(indices)
        return [self._checked(int(i), content) for i, content in zip(indices, contents, strict=True)]

    def _checked(self, index: int, content: bytes | Lost) -> bytes | CorruptImageError:
        if isinstance(content, Lost):
            return CorruptImageError(self.name(index), f"its shard {content.reason}")
        if self.rows.crc is not None and zlib.crc32(content) != self.rows.crc[index]:
            return CorruptImageError(self.name(index), "its bytes in the shard are not those that were packed (CRC-32)")
        return content

    def _from_tars(self, indices: np.ndarray) -> list[bytes | Lost]:
        rows = self.rows
        wanted = [
            Range(self.shards[s].path, p, p + n)
            for s, p, n in zip(*(c[indices].tolist() for c in (rows.shard, rows.place, rows.size)), strict=True)
        ]
        if not wanted or not is_remote(wanted[0].path):
            return read_ranges(wanted)
        order = sorted(range(len(wanted)), key=lambda i: (wanted[i].path, wanted[i].start))
        runs = list(merged([wanted[i] for i in order]))
        found: list[bytes | Lost] = [Lost("")] * len(wanted)
        for (run, members), content in zip(runs, read_ranges([run for run, _ in runs]), strict=True):
            for member in members:
                r = wanted[order[member]]
                found[order[member]] = (
                    content if isinstance(content, Lost) else content[r.start - run.start : r.end - run.start]
                )
        return found

    def _from_parquet(self, indices: np.ndarray) -> list[bytes | Lost]:
        groups, found = self.groups(indices), list[bytes | Lost]()
        for index, group in zip(indices.tolist(), groups.tolist(), strict=True):
            shard = self.shards[self.rows.shard[index]]
            first = sum(shard.groups[:group])
            column = HELD_GROUPS.get((shard.path, group, self.column), partial(self._read, shard, group))
            if isinstance(column, Lost):
                found.append(column)
            else:
                content = column[int(self.rows.place[index]) - first].as_py()
                found.append(Lost("has no bytes for it") if content is None else content)
        return found

    def _read(self, shard: Shard, group: int) -> Any:
        """A row group's images; what is wrong with the file counts for all of them."""
        import pyarrow

        def read() -> Any:
            from pyarrow import compute, large_binary, parquet, types

            with open_file(shard.path) as raw:
                metadata = _footer(shard.path, shard.stored.state if shard.stored else "")
                table = parquet.ParquetFile(raw, metadata=metadata).read_row_group(group, columns=[self.column])
            column = table[self.column]
            if types.is_struct(column.type):
                column = compute.struct_field(column, "bytes")
            return column.cast(large_binary()).combine_chunks()

        try:
            return retried(read, shard.path)
        except FileNotFoundError:
            return Lost("is missing")
        except (pyarrow.ArrowException, OSError) as error:  # one that is here, for those over a network are a WorkError
            return Lost(f"cannot be read as parquet ({str(error).splitlines()[0]})")

    def groups(self, indices: np.ndarray) -> np.ndarray:
        """The row group of each, within its shard."""
        shard, place = self.rows.shard[indices], self.rows.place[indices]
        found = np.zeros(len(indices), np.int64)
        for s in np.unique(shard):
            here = shard == s
            found[here] = np.searchsorted(np.cumsum(self.shards[s].groups), place[here], side="right")
        return found

    def chunks(self) -> np.ndarray:
        """(N,) int64: equal for images that lie together."""
        within = self.groups(np.arange(len(self))) if self.column else self.rows.place // TAR_CHUNK
        return self.rows.shard.astype(np.int64) << 32 | within

    @property
    def window(self) -> int:
        """Bytes that may be mixed with one another."""
        return PARQUET_WINDOW if self.column else TAR_WINDOW


def unwrap_subsets(images: ImageSource) -> tuple[ImageSource, np.ndarray | None]:
    """Below all subsets: the images, and which of them (None: all)."""
    rows = None
    while isinstance(images, ImageSubset):
        rows = images.indices if rows is None else images.indices[rows]
        images = images.images
    return images, rows


def read_many(images: ImageSource, indices: np.ndarray) -> list[RawImage | CorruptImageError]:
    """Several images of any kind, together where that is faster."""
    found, rows = unwrap_subsets(images)
    if isinstance(found, ShardImages):
        return list(found.many(indices if rows is None else rows[indices]))
    return [_one(images, int(i)) for i in indices]


def reading_order(images: ImageSource, indices: np.ndarray) -> np.ndarray:
    """Places in `indices`, in the order in which the images lie on the disk, where that matters."""
    found, rows = unwrap_subsets(images)
    if not isinstance(found, ShardImages):
        return np.arange(len(indices))
    here = indices if rows is None else rows[indices]
    return np.lexsort((found.rows.place[here], found.rows.shard[here]))


def merged(ranges: Sequence[Range]) -> Iterator[tuple[Range, list[int]]]:
    """Sorted ranges, those near to each other as one; with each the places of what it covers."""
    run, members = ranges[0], [0]
    for place, r in enumerate(ranges[1:], 1):
        if run.path == r.path and r.start - run.end <= MERGED_GAP and r.end - run.start <= MERGED_MOST:
            run = Range(run.path, run.start, max(run.end, r.end))
            members.append(place)
        else:
            yield run, members
            run, members = r, [place]
    yield run, members


def _one(images: ImageSource, index: int) -> RawImage | CorruptImageError:
    try:
        return images[index]
    except CorruptImageError as error:
        return error


@lru_cache(maxsize=4096)
def _footer(path: str, state: str) -> Any:
    from pyarrow import parquet

    with open_file(path) as raw:
        return parquet.read_metadata(raw)


class _Held:
    """Row groups in memory, the least lately used ones given up. Threads that want the same one wait for one read."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.forget()

    def forget(self) -> None:
        self.lock, self.parts = threading.Lock(), OrderedDict[Any, Future[Any]]()

    def get(self, key: Any, read: Callable[[], Any]) -> Any:
        with self.lock:
            part = self.parts.get(key)
            if mine := part is None:
                part = self.parts[key] = Future()
            self.parts.move_to_end(key)
        if mine:
            try:
                part.set_result(read())
            except BaseException as error:
                with self.lock:
                    self.parts.pop(key, None)
                part.set_exception(error)
            self._give_up()
        return part.result()

    def _give_up(self) -> None:
        with self.lock:
            sizes = {key: getattr(p.result(), "nbytes", 0) for key, p in self.parts.items() if _ready(p)}
            total = sum(sizes.values())
            for key in list(sizes)[:-1]:
                if total <= self.limit:
                    break
                total -= sizes[key]
                del self.parts[key]


def _ready(part: "Future[Any]") -> bool:
    return part.done() and part.exception() is None


HELD_GROUPS = _Held(HELD)
if hasattr(os, "register_at_fork"):  # a worker process must not wait for a thread that it does not have
    os.register_at_fork(after_in_child=HELD_GROUPS.forget)
