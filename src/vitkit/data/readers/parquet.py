"""Read parquet files: into memory if they are small, else row group by row group."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitkit.data.dataset import Dataset, FileImages, ImageSource
from vitkit.data.decode_pipeline import CORRUPT_LIMIT
from vitkit.data.readers.columns import IMAGE_COLUMNS, check_paths, find_column, parse_split, split_of_file
from vitkit.data.shards.index import PackedStrings, SampleTable, Shard
from vitkit.data.shards.reader import ShardImages
from vitkit.data.shards.storage import FileStat, open_file, retry_remote, stat_files
from vitkit.data.split import RawDataset, build_dataset
from vitkit.errors import CorruptImageError, DataError
from vitkit.runtime.packages import require_package
from vitkit.runtime.threads import threaded_map

if TYPE_CHECKING:
    import pyarrow

MEMORY_LIMIT = 2**30  # bytes of images that are read into memory: fixed, because sample order depends on it


@dataclass(frozen=True)
class ParquetImages(ImageSource):
    """Image files in a column of a table in memory."""

    column: "pyarrow.Array"
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int, /) -> bytes:
        content = self.column[index].as_py()
        if content is None:
            raise CorruptImageError(self.names[index], "has no image bytes")
        return content

    def name(self, index: int, /) -> str:
        return self.names[index]


def read_parquet(path: Path, label: str, corrupt_limit: float = CORRUPT_LIMIT) -> Dataset:
    """Read one file, a folder of files, or a pattern. An image may be bytes, {bytes, path}, or a path as in CSV."""
    pyarrow = require_package("pyarrow", "reading parquet files", "data")
    from pyarrow import parquet

    files = _find(path)
    if not files:
        raise DataError(f"{path}: no parquet file matches")
    try:
        schema = parquet.read_schema(files[0])
        image_column = find_column(schema.names, IMAGE_COLUMNS, str(files[0]))
        label_column = find_column(schema.names, (label,), str(files[0]))
        others = [c for c in ("split", "path") if c in schema.names]
        if _image_bytes(files, image_column) > MEMORY_LIMIT:
            return stream_parquet(path.stem, [str(f) for f in files], label, corrupt_limit)
        wanted = list(dict.fromkeys([image_column, label_column, *others]))
        tables = [parquet.read_table(f, columns=wanted) for f in files]
        table = pyarrow.concat_tables(tables)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({str(error).splitlines()[0]})") from error
    rows = [f"{f.name}[{row}]" for f, t in zip(files, tables, strict=True) for row in range(len(t))]
    if "split" in schema.names:
        splits = [parse_split(str(s), where) for s, where in zip(table["split"].to_pylist(), rows, strict=True)]
    else:
        splits = [split_of_file(f) for f, t in zip(files, tables, strict=True) for _ in range(len(t))]
    paths = table["path"].to_pylist() if "path" in others and image_column != "path" else [None] * len(rows)
    images = _image_source(table[image_column], paths, rows, files[0].parent, path)
    labels = _parse_labels(table[label_column], rows)
    return build_dataset(RawDataset(path.stem, images, labels, splits, _class_names(schema, label_column)))


def stream_parquet(name: str, paths: Sequence[str], label: str, corrupt_limit: float = CORRUPT_LIMIT) -> Dataset:
    """Open files that are remote or too large for memory: labels are read now, images when needed, in file order."""
    pyarrow = require_package("pyarrow", "reading parquet files", "data")
    found = stat_files(paths)
    stats = [stat for stat in found if stat is not None]
    missing = [path for path, stat in zip(paths, found, strict=True) if stat is None]
    if len(missing) > corrupt_limit * len(paths) or not stats:
        raise DataError(
            f"{len(missing)} of {len(paths)} shards are missing ({len(missing) / len(paths):.2%} of them, the limit is "
            f"{corrupt_limit:.2%}), such as {missing[0]}: copy it again"
        )
    try:
        heads = list(threaded_map(lambda stat: retry_remote(lambda: _read_head(stat, label), stat.path), stats))
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{name}: cannot be read as parquet ({str(error).splitlines()[0]})") from error
    counts = [sum(head.groups) for head in heads]
    shards = [Shard(s.path, n, s.size, groups=h.groups, stat=s) for s, n, h in zip(stats, counts, heads, strict=True)]
    samples = SampleTable(
        np.repeat(np.arange(len(heads), dtype=np.int32), counts),
        np.concatenate([np.arange(n) for n in counts]),
        np.concatenate([head.sizes for head in heads]),
        PackedStrings.of([f"[{row}]" for n in counts for row in range(n)]),
    )
    values = pyarrow.chunked_array([chunk for head in heads for chunk in head.labels.chunks])
    rows = [f"{stat.path}[{row}]" for stat, n in zip(stats, counts, strict=True) for row in range(n)]
    splits = [split for head in heads for split in head.splits]
    images, notes = ShardImages(shards, samples, heads[0].image_column), [f"{path} is missing" for path in missing]
    labels = _parse_labels(values, rows)
    return build_dataset(RawDataset(name, images, labels, splits, heads[0].class_names, notes, keep_order=True))


def _find(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.parquet"))
    return [path] if path.is_file() else sorted(map(Path, glob(str(path), recursive=True)))


def _image_bytes(files: Sequence[Path], column: str) -> int:
    """Return the uncompressed size of the image column in all files."""
    from pyarrow import parquet

    size = 0
    for metadata in map(parquet.read_metadata, files):
        for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
            columns = [group.column(i) for i in range(group.num_columns)]
            size += sum(c.total_uncompressed_size for c in columns if c.path_in_schema.split(".")[0] == column)
    return size


def _image_source(
    column: "pyarrow.ChunkedArray", paths: list[str | None], rows: list[str], folder: Path, source: Path
) -> ImageSource:
    import pyarrow
    from pyarrow import compute, types

    if types.is_struct(column.type):
        keys = [column.type.field(i).name for i in range(column.type.num_fields)]
        if "path" in keys and not any(paths):
            paths = compute.struct_field(column, "path").to_pylist()
        if "bytes" not in keys or compute.struct_field(column, "bytes").null_count == len(column):
            column = pyarrow.chunked_array([pyarrow.array(paths, type=pyarrow.string())])
        else:
            column = compute.struct_field(column, "bytes")
    if types.is_string(column.type) or types.is_large_string(column.type):
        return check_paths(FileImages([str(folder / (text or "")) for text in column.to_pylist()]), source)
    if not (types.is_binary(column.type) or types.is_large_binary(column.type)):
        raise DataError(f"{source}: images are {column.type}; expected encoded bytes, {{bytes, path}} or a path")
    names = [path or row for path, row in zip(paths, rows, strict=True)]
    return ParquetImages(column.cast(pyarrow.large_binary()).combine_chunks(), names)


def _parse_labels(column: "pyarrow.ChunkedArray", rows: list[str]) -> list[str] | np.ndarray:
    values = column.to_pylist()
    if None in values:
        raise DataError(f"{rows[values.index(None)]}: no label; fill it in or remove the row")
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return np.array(values, dtype=np.int64)
    return [str(v) for v in values]


def _class_names(schema: "pyarrow.Schema", label: str) -> list[str] | None:
    """Return the class names that Hugging Face's `datasets` stores in the file's metadata, or None."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return [str(n) for n in features[label]["names"]]
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class _Head:
    """The parts of a parquet file that are read when it is opened."""

    image_column: str
    class_names: list[str] | None
    groups: tuple[int, ...]  # rows of each row group
    labels: Any  # per row, as are all below
    splits: list[str]
    sizes: np.ndarray  # bytes, approximately


def _read_head(stat: FileStat, label: str) -> _Head:
    from pyarrow import parquet, types

    with open_file(stat.path) as raw:
        file = parquet.ParquetFile(raw)
        schema, metadata = file.schema_arrow, file.metadata
        column = find_column(schema.names, IMAGE_COLUMNS, stat.path)
        kind = schema.field(column).type
        kind = kind.field("bytes").type if types.is_struct(kind) and kind.get_field_index("bytes") >= 0 else kind
        if not (types.is_binary(kind) or types.is_large_binary(kind)):
            raise DataError(f"{stat.path}: images are {kind}; large or remote parquet files must contain the bytes")
        label = find_column(schema.names, (label,), stat.path)
        table = file.read(columns=[label, *(["split"] if "split" in schema.names else [])])
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    if "split" in schema.names:
        splits = [parse_split(str(s), f"{stat.path}[{i}]") for i, s in enumerate(table["split"].to_pylist())]
    else:
        splits = [split_of_file(Path(stat.path))] * metadata.num_rows
    rows = tuple(g.num_rows for g in groups)
    sizes = np.repeat([g.total_byte_size // max(g.num_rows, 1) for g in groups], rows).astype(np.int64)
    return _Head(column, _class_names(schema, label), rows, table[label], splits, sizes)
