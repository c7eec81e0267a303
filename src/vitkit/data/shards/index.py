"""The index of packed shards: two small files beside them that say what lies where, and what it must be.

index.json     format, class names, and for every shard its split, images, bytes and SHA-256
samples.npz    for every image, in the order of its split: label, shard, place, size, CRC-32, stamp, name

The order of samples is that of the table, not of the shards: what was a folder trains as that folder does.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.atomic import sha256, write_atomic, write_json
from vitkit.data.dataset import SPLITS, Dataset, Split
from vitkit.data.shards.reader import Names, Rows, Shard, ShardImages
from vitkit.data.shards.storage import Lost, beside, look, read_whole
from vitkit.errors import DataError

INDEX, SAMPLES, VERSION = "index.json", "samples.npz", 1
IMAGE_COLUMN = "image"  # of packed parquet files


@dataclass(frozen=True)
class Part:
    """A split in its shards."""

    labels: np.ndarray
    rows: Rows


def write_index(
    folder: Path, head: Mapping[str, Any], shards: list[tuple[str, Shard]], parts: Mapping[str, Part]
) -> None:
    """`head`: what else the index says; `shards`: (split, shard). Written last: a folder without it is not whole."""
    columns: dict[str, np.ndarray] = {}
    for split, part in parts.items():
        names = Names.of(part.rows.names)
        assert part.rows.crc is not None
        assert part.rows.hashes is not None
        columns |= {f"{split}_{key}": value for key, value in {
            "label": part.labels.astype(np.int32), "shard": part.rows.shard.astype(np.int32), "place": part.rows.place,
            "size": part.rows.size, "crc": part.rows.crc, "stamp": part.rows.hashes,
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
        folder / INDEX,
        {"vitkit_shards": VERSION, **head, "samples_sha256": sha256(file.getvalue()), "shards": rows},
    )


def has_index(folder: str) -> bool:
    try:
        return not isinstance(read_whole(beside(folder, INDEX)), Lost)
    except DataError:  # S3 does not say of what is not there that it is not, to those who may not list
        return False


def read_index(folder: str) -> tuple[Dataset, dict[str, Any]]:
    """The data set as it was packed, whatever has become of its shards since; and what index.json says."""
    where = beside(folder, INDEX)
    try:
        head = json.loads(_content(where))
        if head.get("vitkit_shards") != VERSION:
            raise DataError(f"{where}: is not an index of version {VERSION}; pack the data again with `vitkit pack`")
        content = _content(beside(folder, SAMPLES))
        if sha256(content) != head["samples_sha256"]:
            raise DataError(f"{beside(folder, SAMPLES)}: does not belong to {INDEX}; copy both again")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            columns = {key: file[key] for key in file.files}
        shards = _shards(folder, head["shards"])
        column = IMAGE_COLUMN if head["format"] == "parquet" else ""
        splits = {
            split: Split(ShardImages(shards, _rows(columns, split), column, packed=True), labels.astype(np.int64))
            for split in SPLITS
            if (labels := columns.get(f"{split}_label")) is not None
        }
        notes = [_missing(shard) for shard in shards if not shard.whole]
        return Dataset(head["name"], head["class_names"], splits, notes, named=head["named"]), head
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{where}: cannot be read as an index of shards ({error})") from error


def _content(path: str) -> bytes:
    content = read_whole(path)
    if isinstance(content, Lost):
        raise DataError(f"{path} {content.reason}; `vitkit pack` writes it")
    return content


def _shards(folder: str, rows: list[dict[str, Any]]) -> list[Shard]:
    paths = [beside(folder, row["file"]) for row in rows]
    return [
        Shard(path, row["images"], row["bytes"], row["sha256"], tuple(row.get("groups", ())), stored)
        for path, row, stored in zip(paths, rows, look(paths), strict=True)
    ]


def _rows(columns: Mapping[str, np.ndarray], split: str) -> Rows:
    shard, place, size, crc, stamp, names, ends = (
        columns[f"{split}_{key}"] for key in ("shard", "place", "size", "crc", "stamp", "names", "ends")
    )
    return Rows(shard, place, size, Names(names.tobytes(), ends), crc, stamp)


def _missing(shard: Shard) -> str:
    if shard.stored is None:
        return f"{shard.path} is missing, with {shard.samples:,} images"
    return f"{shard.path} has {shard.stored.size:,} bytes and was packed with {shard.size:,}: some of it may be lost"
