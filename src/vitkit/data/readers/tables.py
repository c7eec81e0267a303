"""The ways in: class folders, CSV, parquet, arrays. Each reader finds images and labels; `arrange.py` does the rest."""

import csv
import json
import os
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitkit.data.dataset import SPLIT_NAMES, SPLITS, Dataset, FileImages, ImageSource
from vitkit.data.decode import SUFFIXES
from vitkit.data.split import RawDataset, build_dataset, from_arrays
from vitkit.errors import CorruptImageError, DataError, MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    import pyarrow

HOLDS = 2**30  # bytes of a table that are read into memory: a fixed number, for the order of samples hangs on it
IMAGE_COLUMNS = ("image", "img", "path", "file_name", "filename")
FROM_PHONES = (".heic", ".heif", ".avif")  # photographs that Pillow does not read by itself
_PATTERN = re.compile(r"[*?\[]")
_WHOLE_NUMBER = re.compile(r"\d+")


# ── A folder of class folders


def read_folder(path: Path, label: str) -> Dataset:
    """CLASS/**/IMAGE, or SPLIT/CLASS/**/IMAGE where a folder is named train, val (valid, validation) or test."""
    parts = {f: SPLIT_NAMES[f.name.lower()] for f in _folders(path) if f.name.lower() in SPLIT_NAMES}
    if not any(_folders(f) for f in parts):  # a folder of images called train is one of locomotives
        parts = {path: "train"}
    paths: list[str] = []
    labels: list[str] = []
    splits: list[str] = []
    notes: list[str] = []
    for root, split in parts.items():
        for folder in _folders(root):
            files = sorted(_files(folder), key=str)
            images = [f for f in files if f.suffix.lower() in SUFFIXES]
            others = Counter(f.suffix or f.name for f in files if f.suffix.lower() not in SUFFIXES)
            if others:
                hint = (
                    "; export those as JPEG to have them read" if any(e.lower() in FROM_PHONES for e in others) else ""
                )
                notes.append(f"{folder}: left out {others.total()} files that are no images ({_listed(others)}){hint}")
            if not images:
                notes.append(f"{folder}: no images, left out")
            paths += map(str, images)
            labels += [folder.name] * len(images)
            splits += [split] * len(images)
        if loose := sum(f.is_file() and f.suffix.lower() in SUFFIXES for f in root.iterdir()):
            notes.append(f"{root}: left out {loose} images that are in no class folder")
    if path not in parts and (ignored := [f.name for f in _folders(path) if f not in parts]):
        notes.append(f"{path}: left out the folders beside the splits ({_listed(ignored)})")
    if not paths:
        if any(f.suffix.lower() in SUFFIXES for f in path.iterdir()):
            raise DataError(
                f"{path}: its images are in no class folder; name the folder above it, or sort them as CLASS/IMAGE"
            )
        raise DataError(
            f"{path}: no images in class folders; expected CLASS/IMAGE or train/CLASS/IMAGE, with endings "
            + ", ".join(sorted(SUFFIXES))
        )
    return build_dataset(RawDataset(path.resolve().name, FileImages(paths), labels, splits, notes=notes))


def _folders(path: Path) -> list[Path]:
    return sorted(f for f in path.iterdir() if f.is_dir() and not f.name.startswith((".", "__")))


def _files(folder: Path) -> Iterator[Path]:
    """All files below, links followed, a link back up not twice."""
    seen = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(root)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield from (Path(root, name) for name in names if not name.startswith("."))


def _listed(names: Sequence[str] | Counter[str], most: int = 3) -> str:
    first = list(names)[:most]
    return ", ".join(first) + (", …" if len(names) > len(first) else "")


# ── CSV


def read_csv(path: Path, label: str) -> Dataset:
    """Columns `image` or `path` (relative to the CSV), the label column, and optionally `split`."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            file.seek(0)
            reader = csv.DictReader(file, delimiter=max(",;\t", key=head.count), strict=True, restkey="")
            rows = [(reader.line_num, row) for row in reader]
            columns = list(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV ({error}); expected UTF-8 with a header line") from error
    image_column = pick_column(columns, IMAGE_COLUMNS, str(path))
    label_column = pick_column(columns, (label,), str(path))
    for line, row in rows:
        for column in (image_column, label_column, *(["split"] if "split" in columns else [])):
            if not row[column]:
                raise DataError(f"{path}, line {line}: no {column}; fill it in or remove the line")
    splits = [named_split(row["split"], f"{path}, line {line}") for line, row in rows] if "split" in columns else None
    images = FileImages([str(path.parent / row[image_column]) for _, row in rows])
    _check_any_exists(images, path)
    labels = numbers_or_names([row[label_column] for _, row in rows])
    return build_dataset(RawDataset(path.stem, images, labels, splits))


def pick_column(columns: Sequence[str], wanted: Sequence[str], where: str) -> str:
    for name in wanted:
        if name in columns:
            return name
    raise UnknownNameError("column", wanted[0], columns, f"{where}; it has {', '.join(columns) or 'no columns'}")


def named_split(name: str, where: str) -> str:
    if name.strip().lower() not in SPLIT_NAMES:
        raise UnknownNameError("split", name, SPLITS, where)
    return SPLIT_NAMES[name.strip().lower()]


def numbers_or_names(labels: list[str]) -> list[str] | np.ndarray:
    """Text that is all whole numbers is class indices."""
    if labels and all(_WHOLE_NUMBER.fullmatch(text) for text in labels):
        return np.array([int(text) for text in labels], dtype=np.int64)
    return labels


def _check_any_exists(images: FileImages, path: Path) -> None:
    """A few missing files count as corrupt ones; if all are missing, the paths are meant in another way."""
    if images.paths and not any(map(os.path.exists, images.paths)):
        raise DataError(f"{path}: none of its images exists, such as {images.paths[0]}; paths are relative to the file")


# ── Parquet


@dataclass(frozen=True)
class ParquetImages:
    """Image files inside a table in memory."""

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


def read_parquet(path: Path, label: str) -> Dataset:
    """One file, a folder of shards, or a pattern. Columns as in CSV; the image may also be bytes or {bytes, path}."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("reading parquet files", "pyarrow", "data") from error

    files = _shards(path)
    if not files:
        raise DataError(f"{path}: no parquet file matches")
    try:
        schema = parquet.read_schema(files[0])
        image_column = pick_column(schema.names, IMAGE_COLUMNS, str(files[0]))
        label_column = pick_column(schema.names, (label,), str(files[0]))
        others = [c for c in ("split", "path") if c in schema.names]
        wanted = list(dict.fromkeys([image_column, label_column, *others]))
        if not _fits_memory(files, image_column, parquet):
            from vitkit.data.shards.stream import open_parquet_files  # it builds on this file

            return open_parquet_files(path.stem, [str(f) for f in files], label)
        tables = [parquet.read_table(f, columns=wanted) for f in files]
        table = pyarrow.concat_tables(tables)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as parquet ({str(error).splitlines()[0]})") from error
    places = [f"{f.name}[{row}]" for f, t in zip(files, tables, strict=True) for row in range(len(t))]
    if "split" in schema.names:
        splits = [named_split(str(s), p) for s, p in zip(table["split"].to_pylist(), places, strict=True)]
    else:
        splits = [split_of_file(f) for f, t in zip(files, tables, strict=True) for _ in range(len(t))]
    paths = table["path"].to_pylist() if "path" in others and image_column != "path" else [None] * len(places)
    images = _parquet_images(table[image_column], paths, places, files[0].parent, path)
    class_names = huggingface_names(schema, label_column)
    labels = parquet_labels(table[label_column], places)
    return build_dataset(RawDataset(path.stem, images, labels, splits, class_names))


def _shards(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.parquet"))
    return [path] if path.is_file() else sorted(map(Path, glob(str(path), recursive=True)))


def split_of_file(path: Path) -> str:
    """train-00000-of-00005.parquet is of train, as is train/0.parquet; other names say nothing."""
    first_word = re.split(r"[^a-z]", path.stem.lower())[0]
    return SPLIT_NAMES.get(first_word) or SPLIT_NAMES.get(path.parent.name.lower()) or "train"


def _parquet_images(
    column: "pyarrow.ChunkedArray", paths: list[str | None], places: list[str], folder: Path, source: Path
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
        files = FileImages([str(folder / (text or "")) for text in column.to_pylist()])
        _check_any_exists(files, source)
        return files
    if not (types.is_binary(column.type) or types.is_large_binary(column.type)):
        raise DataError(f"{source}: images are {column.type}; expected encoded bytes, {{bytes, path}} or a path")
    names = [p or place for p, place in zip(paths, places, strict=True)]
    return ParquetImages(column.cast(pyarrow.large_binary()).combine_chunks(), names)


def parquet_labels(column: "pyarrow.ChunkedArray", places: list[str]) -> list[str] | np.ndarray:
    values = column.to_pylist()
    if None in values:
        raise DataError(f"{places[values.index(None)]}: no label; fill it in or remove the row")
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return np.array(values, dtype=np.int64)
    return [str(v) for v in values]


def huggingface_names(schema: "pyarrow.Schema", label: str) -> list[str] | None:
    """The class names that Hugging Face's `datasets` keeps in the file's metadata."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return [str(n) for n in features[label]["names"]]
    except (KeyError, TypeError, ValueError):
        return None


def _fits_memory(files: Sequence[Path], column: str, parquet: Any) -> bool:
    size = 0
    for file in files:
        metadata = parquet.read_metadata(file)
        for group in (metadata.row_group(i) for i in range(metadata.num_row_groups)):
            columns = [group.column(i) for i in range(group.num_columns)]
            size += sum(c.total_uncompressed_size for c in columns if c.path_in_schema.split(".")[0] == column)
    return size <= HOLDS


# ── Arrays


def read_npz(path: Path, label: str) -> Dataset:
    """`train_images` (N, H, W[, C]) uint8, `train_labels`; the same for val and test; `class_names`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except (OSError, ValueError, EOFError, MemoryError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: cannot be read as .npz arrays ({error})") from error
    splits = {}
    for split in SPLITS:
        if f"{split}_images" in arrays:
            if f"{split}_labels" not in arrays:
                raise DataError(f"{path}: {split}_images without {split}_labels")
            images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
            splits[split] = images, check_arrays(images, labels, f"{path}: {split}")
    if not splits:
        raise DataError(f"{path}: no train_images, val_images or test_images; it has {_listed(list(arrays), 8)}")
    names = [str(n) for n in arrays["class_names"]] if "class_names" in arrays else None
    return from_arrays(path.stem, splits, names)


def check_arrays(images: np.ndarray, labels: np.ndarray, where: str) -> np.ndarray:
    """The labels, one per image."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise DataError(f"{where}_images are {images.dtype} {images.shape}; expected uint8 (N, H, W) or (N, H, W, C)")
    if images.ndim == 4 and images.shape[1] in (1, 3) and images.shape[3] > 4:
        raise DataError(f"{where}_images are {images.shape}, channels first; expected (N, H, W, C): transpose them")
    if not len(images):
        raise DataError(f"{where}_images are empty")
    labels = labels[:, 0] if labels.shape[1:] == (1,) else labels
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iuUS":
        raise DataError(
            f"{where}_labels are {labels.dtype} {labels.shape} for {len(images)} images; "
            "expected one whole number or name each"
        )
    return labels


def _is_parquet(path: Path) -> bool:
    if path.is_dir():
        return not any(_folders(path)) and any(path.glob("*.parquet"))
    return path.suffix == ".parquet" if path.exists() else bool(_PATTERN.search(str(path)))


# Which reader for which path: the first that fits
READERS: list[tuple[Callable[[Path], bool], Callable[[Path, str], Dataset]]] = [
    (_is_parquet, read_parquet),
    (Path.is_dir, read_folder),
    (lambda path: path.is_file() and path.suffix in (".csv", ".tsv"), read_csv),
    (lambda path: path.is_file() and path.suffix == ".npz", read_npz),
]
