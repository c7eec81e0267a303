"""The index of packed shards: two small files next to the shards that say where each image is, with checksums.

index.json     format, class names, and for every shard its split, number of images, bytes and SHA-256
samples.npz    for every image, in the order of its split: label, shard, offset, size, CRC-32, content hash, name

Sample order is the order of this table, not of the shards: a packed folder trains exactly as the folder does.
"""

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.atomic import sha256, write_atomic, write_json
from vitkit.data.dataset import SPLITS, ReadFailure
from vitkit.data.shards.storage import FileStat, join, read_file, stat_files
from vitkit.errors import DataError

INDEX, SAMPLES, VERSION = "index.json", "samples.npz", 1
IMAGE_COLUMN = "image"  # of packed parquet files


@dataclass(frozen=True)
class Shard:
    """A tar or parquet file that holds many images."""

    path: str
    samples: int
    size: int  # bytes when it was packed or scanned
    sha256: str = ""  # "": not computed
    groups: tuple[int, ...] = ()  # parquet: the number of rows in each row group
    stat: FileStat | None = None  # the file as it is now; None: missing

    @property
    def has_packed_size(self) -> bool:
        return self.stat is not None and self.stat.size == self.size


class PackedStrings(Sequence[str]):
    """A sequence of many short strings, stored in one byte string."""

    def __init__(self, text: bytes, ends: np.ndarray) -> None:
        self.text, self.ends = text, ends

    @classmethod
    def of(cls, strings: Sequence[str]) -> "PackedStrings":
        encoded = [string.encode(errors="surrogateescape") for string in strings]
        return cls(b"".join(encoded), np.cumsum([len(e) for e in encoded], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        begin = int(self.ends[index - 1]) if index else 0
        return self.text[begin : int(self.ends[index])].decode(errors="surrogateescape")


@dataclass(frozen=True)
class SampleTable:
    """The position of each image in the shards, one row per image."""

    shard: np.ndarray  # int32, into the list of shards
    offset: np.ndarray  # int64: the first byte in a tar, the row in a parquet file
    size: np.ndarray  # int64, bytes
    names: Sequence[str]  # CLASS/FILE before it was packed
    crc: np.ndarray | None = None  # uint32, CRC-32 of the image's bytes
    hashes: np.ndarray | None = None  # (N, 16) uint8, content hashes

    def take(self, rows: np.ndarray) -> "SampleTable":
        optional = [None if c is None else c[rows] for c in (self.crc, self.hashes)]
        names = PackedStrings.of([self.names[i] for i in rows.tolist()])
        return SampleTable(self.shard[rows], self.offset[rows], self.size[rows], names, *optional)


@dataclass(frozen=True)
class ShardIndex:
    """The contents of the two index files."""

    head: Mapping[str, Any]  # index.json
    shards: Sequence[Shard]
    splits: Mapping[str, tuple[np.ndarray, SampleTable]]  # split → (labels, samples)


def write_index(
    folder: Path,
    head: Mapping[str, Any],
    shards: Sequence[tuple[str, Shard]],
    splits: Mapping[str, tuple[np.ndarray, SampleTable]],
) -> None:
    """Write both files. `head` has further entries of index.json, `shards` are (split, shard).

    index.json is written last: without it, packing is incomplete.
    """
    columns: dict[str, np.ndarray] = {}
    for split, (labels, samples) in splits.items():
        names = PackedStrings.of(samples.names)
        assert samples.crc is not None
        assert samples.hashes is not None
        columns |= {f"{split}_{key}": value for key, value in {
            "label": labels.astype(np.int32), "shard": samples.shard.astype(np.int32), "place": samples.offset,
            "size": samples.size, "crc": samples.crc, "stamp": samples.hashes,
            "names": np.frombuffer(names.text, np.uint8), "ends": names.ends,
        }.items()}  # fmt: skip
    file = io.BytesIO()
    np.savez(file, **columns)  # type: ignore[arg-type]  # numpy's stub takes allow_pickle for one of them
    write_atomic(folder / SAMPLES, file.getvalue())
    rows = [
        {"file": s.path, "split": split, "images": s.samples, "bytes": s.size, "sha256": s.sha256}
        | ({"groups": s.groups} if s.groups else {})
        for split, s in shards
    ]
    write_json(
        folder / INDEX, {"vitkit_shards": VERSION, **head, "samples_sha256": sha256(file.getvalue()), "shards": rows}
    )


def has_index(folder: str) -> bool:
    try:
        return not isinstance(read_file(join(folder, INDEX)), ReadFailure)
    except DataError:  # S3 denies access to a missing file if the user may not list the bucket
        return False


def read_index(folder: str) -> ShardIndex:
    """Return the index as it was packed, with the current state of the shards."""
    path = join(folder, INDEX)
    try:
        head = json.loads(_read(path))
        if head.get("vitkit_shards") != VERSION:
            raise DataError(f"{path}: not an index of version {VERSION}; pack the data again with `vitkit pack`")
        content = _read(join(folder, SAMPLES))
        if sha256(content) != head["samples_sha256"]:
            raise DataError(f"{join(folder, SAMPLES)}: does not belong to {INDEX}; copy both again")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            columns = {key: file[key] for key in file.files}
        paths = [join(folder, row["file"]) for row in head["shards"]]
        shards = [
            Shard(path, row["images"], row["bytes"], row["sha256"], tuple(row.get("groups", ())), stat)
            for path, row, stat in zip(paths, head["shards"], stat_files(paths), strict=True)
        ]
        splits = {
            split: (labels.astype(np.int64), _sample_table(columns, split))
            for split in SPLITS
            if (labels := columns.get(f"{split}_label")) is not None
        }
        needed = {key: head[key] for key in ("name", "format", "class_names", "named", "arrays")}
        return ShardIndex(needed, shards, splits)
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: cannot be read as an index of shards ({error})") from error


def _read(path: str) -> bytes:
    content = read_file(path)
    if isinstance(content, ReadFailure):
        raise DataError(f"{path} {content.reason}; `vitkit pack` writes it")
    return content


def _sample_table(columns: Mapping[str, np.ndarray], split: str) -> SampleTable:
    shard, offset, size, crc, hashes, names, ends = (
        columns[f"{split}_{key}"] for key in ("shard", "place", "size", "crc", "stamp", "names", "ends")
    )
    return SampleTable(shard, offset, size, PackedStrings(names.tobytes(), ends), crc, hashes)
