"""Read images out of shards, by any process in any order.

A shard is a tar or a parquet file that holds many images. The position of each image is known beforehand: `index.py`
has it for shards of `vitkit pack`, `tar_index.py` for other tars. So an image is a byte range of a tar, or a row in a
row group. A batch requests all of its ranges at once. Nothing is read in advance and there is no state: sample order
(`sampler.py`) alone decides which rank or worker reads which image.

Hugging Face's `datasets` streams such files too, but shuffles them in a buffer per reader: the order depends on the
number of readers, and resuming loses the content of the buffer.
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

from vitkit.data.dataset import ImageSource, RawImage, ReadFailure
from vitkit.data.shards.index import SampleTable, Shard
from vitkit.data.shards.storage import ByteRange, is_remote, open_file, read_ranges, retry_remote

# A chunk is a run of images that are stored together; an epoch shuffles windows of chunks (`sampler.py`). Images of a
# tar can be read one by one, so their window only keeps the disk cache useful. A row group of a parquet file is read
# completely and held until its window has passed.
TAR_CHUNK, TAR_WINDOW = 2**24, 2**34
PARQUET_WINDOW = 2**29
CACHED_BYTES = 3 * PARQUET_WINDOW  # the window that ends, the one that begins, and room for large row groups

MERGE_GAP, MERGE_LIMIT = 2**14, 2**24  # remote ranges closer than this share a request, up to this size


@dataclass(frozen=True, eq=False)
class ShardImages(ImageSource):
    shards: Sequence[Shard]
    samples: SampleTable
    column: str = ""  # of the images in parquet files; "" for tars
    packed: bool = False  # True: each image was decoded when it was packed

    def __len__(self) -> int:
        return len(self.samples.shard)

    def __getitem__(self, index: int, /) -> RawImage:
        (content,) = self.read_many(np.array([index]))
        if isinstance(content, ReadFailure):
            raise content.error()
        return content

    def name(self, index: int, /) -> str:
        return f"{self.shards[self.samples.shard[index]].path}/{self.samples.names[index]}"

    def read_many(self, indices: np.ndarray, /) -> list[RawImage | ReadFailure]:
        contents = self._read_rows(indices) if self.column else self._read_ranges(indices)
        return [self._check(int(i), content) for i, content in zip(indices, contents, strict=True)]

    def storage_order(self, indices: np.ndarray, /) -> np.ndarray:
        return np.lexsort((self.samples.offset[indices], self.samples.shard[indices]))

    def content_hash(self, index: int, /) -> bytes:
        """Return the hash in the index; if the shard has changed since packing, hash the current content."""
        if self.samples.hashes is None or not self.shards[self.samples.shard[index]].has_packed_size:
            return super().content_hash(index)
        return self.samples.hashes[index].tobytes()

    @property
    def has_cheap_hashes(self) -> bool:
        return self.samples.hashes is not None

    def chunks(self) -> np.ndarray:
        """Return a number per image, (N,) int64, that is equal for images that are stored together."""
        within = self._row_groups(np.arange(len(self))) if self.column else self.samples.offset // TAR_CHUNK
        return self.samples.shard.astype(np.int64) << 32 | within

    @property
    def window(self) -> int:
        """Bytes that are shuffled together."""
        return PARQUET_WINDOW if self.column else TAR_WINDOW

    def _check(self, index: int, content: bytes | ReadFailure) -> bytes | ReadFailure:
        if isinstance(content, ReadFailure):
            return ReadFailure(self.name(index), f"its shard {content.reason}")
        if self.samples.crc is not None and zlib.crc32(content) != self.samples.crc[index]:
            return ReadFailure(self.name(index), "its bytes in the shard have changed since it was packed (CRC-32)")
        return content

    def _read_ranges(self, indices: np.ndarray) -> list[bytes | ReadFailure]:
        columns = (self.samples.shard, self.samples.offset, self.samples.size)
        wanted = [
            ByteRange(self.shards[shard].path, offset, offset + size)
            for shard, offset, size in zip(*(c[indices].tolist() for c in columns), strict=True)
        ]
        if not wanted or not is_remote(wanted[0].path):
            return read_ranges(wanted)
        order = sorted(range(len(wanted)), key=lambda i: (wanted[i].path, wanted[i].start))
        merged = list(_merge([wanted[i] for i in order]))
        found: dict[int, bytes | ReadFailure] = {}
        for (run, members), content in zip(merged, read_ranges([run for run, _ in merged]), strict=True):
            for i in (order[member] for member in members):
                begin, end = wanted[i].start - run.start, wanted[i].end - run.start
                found[i] = content if isinstance(content, ReadFailure) else content[begin:end]
        return [found[i] for i in range(len(wanted))]

    def _read_rows(self, indices: np.ndarray) -> list[bytes | ReadFailure]:
        found: list[bytes | ReadFailure] = []
        for index, group in zip(indices.tolist(), self._row_groups(indices).tolist(), strict=True):
            shard = self.shards[self.samples.shard[index]]
            column = ROW_GROUPS.get((shard.path, group, self.column), partial(self._read_group, shard, group))
            if isinstance(column, ReadFailure):
                found.append(column)
                continue
            content = column[int(self.samples.offset[index]) - sum(shard.groups[:group])].as_py()
            found.append(ReadFailure(shard.path, "has no bytes for it") if content is None else content)
        return found

    def _read_group(self, shard: Shard, group: int) -> Any:
        """Return the images of a row group, or the failure of the file."""
        import pyarrow
        from pyarrow import compute, parquet, types

        def read() -> Any:
            with open_file(shard.path) as raw:
                metadata = _parquet_metadata(shard.path, shard.stat.state if shard.stat else "")
                table = parquet.ParquetFile(raw, metadata=metadata).read_row_group(group, columns=[self.column])
            column = table[self.column]
            if types.is_struct(column.type):
                column = compute.struct_field(column, "bytes")
            return column.cast(pyarrow.large_binary()).combine_chunks()

        try:
            return retry_remote(read, shard.path)
        except FileNotFoundError:
            return ReadFailure(shard.path, "is missing")
        except (pyarrow.ArrowException, OSError) as error:  # of a local file: remote errors are WorkErrors
            return ReadFailure(shard.path, f"cannot be read as parquet ({str(error).splitlines()[0]})")

    def _row_groups(self, indices: np.ndarray) -> np.ndarray:
        """Return the row group of each image within its shard."""
        shard, row = self.samples.shard[indices], self.samples.offset[indices]
        found = np.zeros(len(indices), np.int64)
        for s in np.unique(shard):
            here = shard == s
            found[here] = np.searchsorted(np.cumsum(self.shards[s].groups), row[here], side="right")
        return found


def _merge(ranges: Sequence[ByteRange]) -> Iterator[tuple[ByteRange, list[int]]]:
    """Merge sorted ranges that are close; yield each merged range and the positions of the ranges that it covers."""
    run, members = ranges[0], [0]
    for position, r in enumerate(ranges[1:], 1):
        if run.path == r.path and r.start - run.end <= MERGE_GAP and r.end - run.start <= MERGE_LIMIT:
            run = ByteRange(run.path, run.start, max(run.end, r.end))
            members.append(position)
        else:
            yield run, members
            run, members = r, [position]
    yield run, members


@lru_cache(maxsize=4096)
def _parquet_metadata(path: str, state: str) -> Any:
    from pyarrow import parquet

    with open_file(path) as raw:
        return parquet.read_metadata(raw)


class _RowGroupCache:
    """Keeps row groups in memory, and drops the least recently used. Threads that need the same one share its read."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clear()

    def clear(self) -> None:
        self.lock, self.entries = threading.Lock(), OrderedDict[Any, Future[Any]]()

    def get(self, key: Any, read: Callable[[], Any]) -> Any:
        with self.lock:
            entry = self.entries.get(key)
            if is_new := entry is None:
                entry = self.entries[key] = Future()
            self.entries.move_to_end(key)
        if is_new:
            try:
                entry.set_result(read())
            except BaseException as error:
                with self.lock:
                    self.entries.pop(key, None)
                entry.set_exception(error)
            self._evict()
        return entry.result()

    def _evict(self) -> None:
        with self.lock:
            complete = {key: e for key, e in self.entries.items() if e.done() and e.exception() is None}
            sizes = {key: getattr(e.result(), "nbytes", 0) for key, e in complete.items()}
            total = sum(sizes.values())
            for key in list(sizes)[:-1]:
                if total <= self.limit:
                    break
                total -= sizes[key]
                del self.entries[key]


ROW_GROUPS = _RowGroupCache(CACHED_BYTES)
if hasattr(os, "register_at_fork"):  # a forked worker must not wait for a thread that it does not have
    os.register_at_fork(after_in_child=ROW_GROUPS.clear)
