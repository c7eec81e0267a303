"""Data in shards, here or in an object store: a folder that `vitkit pack` wrote, WebDataset tars, parquet files.

Hugging Face's `datasets` streams such files too, but its order comes out of a shuffle buffer that each reader fills for
itself: the samples depend on how many readers there are, and a resumed stream has lost what was in the buffer. Here the
place of every sample is known before the first is read, so the order stays a pure function of seed, epoch and position
(`windows.py`); the bytes come from pyarrow and fsspec, as they do there, and the same files are read.
"""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vitkit.data.dataset import Dataset, RawImage
from vitkit.data.pipeline import CORRUPT_LIMIT, CORRUPT_LIMIT_OPTIONS, read_split, threaded_map
from vitkit.data.progress import progress_bar
from vitkit.data.readers.tables import (
    IMAGE_COLUMNS,
    huggingface_names,
    named_split,
    numbers_or_names,
    parquet_labels,
    pick_column,
    split_of_file,
)
from vitkit.data.shards.index import INDEX, has_index, read_index
from vitkit.data.shards.reader import Names, Rows, Shard, ShardImages
from vitkit.data.shards.storage import Stored, beside, find, is_pattern, is_remote, look, open_file, retried
from vitkit.data.shards.tar_index import Scanned, scan_tar
from vitkit.data.split import RawDataset, build_dataset, from_arrays
from vitkit.errors import CorruptImageError, DataError, MissingExtraError

SUFFIXES = (".tar", ".parquet")
UNPACKS = 4 * 2**30  # bytes of packed arrays that are unpacked into memory again


def is_shards(spec: str) -> bool:
    """What this file reads, as far as the name and a look at the folder tell."""
    if is_remote(spec):
        return True
    path = Path(spec).expanduser()
    if path.is_dir():
        indexed = (path / INDEX).is_file() and any(path.glob("*.parquet"))
        return indexed or (any(path.glob("*.tar")) and not any(_folders(path)))
    return path.suffix == ".tar" if path.exists() else is_pattern(spec) and (path.suffix == ".tar" or "{" in spec)


def open_shards(spec: str, label: str, limit: float = CORRUPT_LIMIT) -> Dataset:
    """`limit`: the share of images that may lie in shards that are not there, where only their number is known."""
    spec = spec if is_remote(spec) else str(Path(spec).expanduser())
    if not spec.endswith(SUFFIXES):
        if has_index(spec):
            return _packed(spec, None, limit)
        paths = [path for suffix in SUFFIXES for path in find(beside(spec, f"*{suffix}"))]
    else:
        paths = find(spec)
        folder = spec.rpartition("/")[0] or "."
        if paths and not is_pattern(folder) and has_index(folder):
            return _packed(folder, paths, limit)
    if not paths:
        raise DataError(f"{spec}: no shards found; expected .tar or .parquet files, or the folder of `vitkit pack`")
    kinds = {Path(path).suffix for path in paths}
    if len(kinds) > 1:
        raise DataError(f"{spec}: both .tar and .parquet files; name one kind, such as '{beside(spec, '*.tar')}'")
    name = re.split(r"[.*?\[{]", Path(spec.rstrip("/")).name)[0].rstrip("-_") or "shards"
    if kinds == {".tar"}:
        return build_dataset(_tars(name, paths, look(paths), label, limit))
    return open_parquet_files(name, paths, label, limit)


def open_parquet_files(name: str, paths: Sequence[str], label: str, limit: float = CORRUPT_LIMIT) -> Dataset:
    """Those that do not fit into memory, or are elsewhere: the images stay where they are."""
    return build_dataset(_parquet_files(name, paths, look(paths), label, limit))


def _folders(path: Path) -> list[Path]:
    return [f for f in path.iterdir() if f.is_dir() and not f.name.startswith(".")]


# ── Packed by vitkit


def _packed(folder: str, only: Sequence[str] | None, limit: float) -> Dataset:
    """`only`: of these shards."""
    data, head = read_index(folder)
    if only is not None:
        data = _restricted(data, {Path(path).name for path in only}, folder)
    if head["arrays"] and sum(map(len, data.splits.values())) * int(np.prod(head["arrays"])) <= UNPACKS:
        return _unpacked(data, tuple(head["arrays"]), limit)
    return data


def _restricted(data: Dataset, files: set[str], folder: str) -> Dataset:
    splits = {}
    for name, split in data.splits.items():
        images = split.images
        assert isinstance(images, ShardImages)
        wanted = np.array([Path(shard.path).name in files for shard in images.shards])
        rows = np.flatnonzero(wanted[images.rows.shard])
        if len(rows) == len(split):
            splits[name] = split
        elif len(rows):
            splits[name] = split.subset(rows)
    if not splits:
        raise DataError(f"{folder}: its index knows none of the shards that were named, such as {min(files)}")
    notes = [note for note in data.notes if any(f"/{file} " in note.replace("\\", "/") for file in files)]
    return Dataset(data.name, data.class_names, splits, notes, data.named)


def _unpacked(data: Dataset, shape: tuple[int, ...], limit: float) -> Dataset:
    """What was arrays is arrays again, and trains as they do."""

    def pixels(encoded: RawImage, name: str) -> np.ndarray:
        try:
            return np.asarray(Image.open(io.BytesIO(bytes(encoded)), formats=["PNG"])).reshape(shape)
        except (OSError, ValueError, SyntaxError) as error:
            raise CorruptImageError(name, f"cannot be unpacked ({error})") from error

    arrays, notes = {}, list(data.notes)
    for name, split in data.splits.items():
        with progress_bar(f"unpacking {name}") as progress:
            images, kept, bad = read_split(split, pixels, limit, progress)
        if not images:
            raise DataError(f"{data.name}: no image of its {name} split can be read; the first: {': '.join(bad[0])}")
        arrays[name] = np.stack(images), kept.labels
        notes += [f"left out: {where}: {reason}" for where, reason in bad]
    return from_arrays(data.name, arrays, data.class_names if data.named else None, notes)


# ── WebDataset tars


def _tars(name: str, paths: Sequence[str], found: Sequence[Stored | None], label: str, limit: float) -> RawDataset:
    there = [stored for stored in found if stored is not None]
    scans: list[Scanned] = []
    with progress_bar("reading the shards through, once") as progress:
        for scanned in threaded_map(lambda i: scan_tar(there[i], label), len(there)):
            scans.append(scanned)
            progress(len(scans), len(there))
    notes = _broken(paths, found, scans, limit)
    shards = [Shard(s.path, len(c.place), s.size, stored=s) for s, c in zip(there, scans, strict=True)]
    counts = [len(c.place) for c in scans]
    place, size, crc, stamps = (
        np.concatenate([getattr(c, column) for c in scans]) for column in ("place", "size", "crc", "stamps")
    )
    names = Names.of([n for c in scans for n in c.names])
    rows = Rows(np.repeat(np.arange(len(scans), dtype=np.int32), counts), place, size, names, crc, stamps)
    labels = numbers_or_names([text for c in scans for text in c.labels])
    splits = [split for s, n in zip(there, counts, strict=True) for split in [split_of_file(Path(s.path))] * n]
    return RawDataset(name, ShardImages(shards, rows), labels, splits, notes=notes)


def _broken(paths: Sequence[str], found: Sequence[Stored | None], scans: Sequence[Scanned], limit: float) -> list[str]:
    """A line for every shard that is not there or not whole; an error where they are too many.

    How many images they held is not known: as many as the others do.
    """
    notes = [f"{path} is missing" for path, stored in zip(paths, found, strict=True) if stored is None]
    there = [path for path, stored in zip(paths, found, strict=True) if stored is not None]
    torn = {path: scan for path, scan in zip(there, scans, strict=True) if scan.broken}
    notes += [f"{path} {scan.broken}: the rest of it is left out" for path, scan in torn.items()]
    whole = [len(scan.place) for scan in scans if not scan.broken]
    if notes and not whole:
        raise DataError(f"none of the {len(paths):,} shards is whole; the first: {notes[0]}")
    usual = float(np.mean(whole)) if whole else 0.0
    lost = usual * (len(paths) - len(there)) + sum(max(usual - len(s.place), 1.0) for s in torn.values())
    total = sum(len(scan.place) for scan in scans) + lost
    if lost > limit * total:
        raise DataError(
            f"about {lost:,.0f} of {total:,.0f} images are in shards that are missing or broken, more than the limit "
            f"of {limit:.2%}; the first: {notes[0]} (copy it again, or go on without: {CORRUPT_LIMIT_OPTIONS})"
        )
    return notes


# ── Parquet files


def _parquet_files(
    name: str, paths: Sequence[str], found: Sequence[Stored | None], label: str, limit: float
) -> RawDataset:
    """Footers and labels are read; the images stay where they are, and in their order."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError("reading parquet files", "pyarrow", "data") from error
    there = [stored for stored in found if stored is not None]
    if len(there) < len(paths):
        gone = next(path for path, stored in zip(paths, found, strict=True) if stored is None)
        if (lost := (len(paths) - len(there)) / len(paths)) > limit:
            raise DataError(
                f"{len(paths) - len(there)} of {len(paths)} shards are missing ({lost:.2%} of them, the limit is "
                f"{limit:.2%}), such as {gone}: copy it again"
            )
    try:
        heads = list(threaded_map(lambda i: retried(lambda: _read_head(there[i], label), there[i].path), len(there)))
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{name}: cannot be read as parquet ({str(error).splitlines()[0]})") from error
    notes = [f"{path} is missing" for path, stored in zip(paths, found, strict=True) if stored is None]
    counts = [sum(head.groups) for head in heads]
    shards = [Shard(s.path, n, s.size, groups=h.groups, stored=s) for s, n, h in zip(there, counts, heads, strict=True)]
    rows = Rows(
        np.repeat(np.arange(len(heads), dtype=np.int32), counts),
        np.concatenate([np.arange(n) for n in counts]),
        np.concatenate([head.sizes for head in heads]),
        Names.of([f"[{row}]" for n in counts for row in range(n)]),
    )
    values = pyarrow.chunked_array([chunk for head in heads for chunk in head.labels.chunks])
    places = [f"{s.path}[{row}]" for s, n in zip(there, counts, strict=True) for row in range(n)]
    splits = [split for head in heads for split in head.splits]
    labels, images = parquet_labels(values, places), ShardImages(shards, rows, heads[0].column)
    return RawDataset(name, images, labels, splits, heads[0].class_names, notes, keep_order=True)


@dataclass(frozen=True)
class _Head:
    """What is read of a parquet file at once."""

    column: str  # of the images
    class_names: list[str] | None
    groups: tuple[int, ...]  # rows of each row group
    labels: Any  # per row, as are all below
    splits: list[str]
    sizes: np.ndarray  # bytes, about


def _read_head(stored: Stored, label: str) -> _Head:
    from pyarrow import parquet, types

    with open_file(stored.path) as raw:
        file = parquet.ParquetFile(raw)
        schema, metadata = file.schema_arrow, file.metadata
        column = pick_column(schema.names, IMAGE_COLUMNS, stored.path)
        kind = schema.field(column).type
        kind = kind.field("bytes").type if types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else kind
        if not (types.is_binary(kind) or types.is_large_binary(kind)):
            raise DataError(
                f"{stored.path}: images are {kind}; shards that are read in parts hold the bytes themselves"
            )
        label = pick_column(schema.names, (label,), stored.path)
        table = file.read(columns=[label, *(["split"] if "split" in schema.names else [])])
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if "split" in schema.names:
        splits = [named_split(str(s), f"{stored.path}[{i}]") for i, s in enumerate(table["split"].to_pylist())]
    else:
        splits = [split_of_file(Path(stored.path))] * metadata.num_rows
    rows = tuple(g.num_rows for g in groups)
    sizes = np.repeat([g.total_byte_size // max(g.num_rows, 1) for g in groups], rows).astype(np.int64)
    return _Head(column, huggingface_names(schema, label), rows, table[label], splits, sizes)
