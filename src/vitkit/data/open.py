"""Open a data set, whatever its format: `open_data` chooses the reader."""

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitkit.data.dataset import Dataset
from vitkit.data.decode_pipeline import CORRUPT_LIMIT
from vitkit.data.readers.builtin_datasets import BUILTIN, open_builtin
from vitkit.data.readers.csv import read_csv
from vitkit.data.readers.folder import read_folder, subfolders
from vitkit.data.readers.npz import read_arrays, read_npz
from vitkit.data.readers.parquet import read_parquet
from vitkit.data.readers.shards import is_shards, open_shards
from vitkit.data.split import with_val
from vitkit.errors import DataError, UsageError

Arrays = Mapping[str, Any] | tuple[Any, Any]  # by name, as in an .npz; or (images, labels) of the train split
DataSpec = str | Path | Arrays


def open_data(
    spec: DataSpec,
    *,
    label: str = "label",
    data_dir: str | Path | None = None,
    seed: int = 0,
    val_fraction: float = 0.1,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Dataset:
    """Open a folder of class folders, a CSV, parquet files, an .npz of arrays, shards, arrays, or a built-in data set.

    Parquet files may be one file, a folder or a pattern. Shards are a folder of `vitkit pack` or WebDataset tars, local
    or in an object store. Arrays are uint8 (N, H, W[, C]) in a dictionary with the names of an .npz, such as
    `train_images` and `train_labels`, or a pair (images, labels). `label` is the column of the class in CSV and
    parquet. If there is a train but no val split, `val_fraction` of train is set aside, drawn by `seed`, and noted; 0
    keeps all of train. A test split is never drawn. `corrupt_limit` is the fraction of images that may be in missing or
    broken shards.
    """
    if not 0 <= val_fraction < 1:
        raise UsageError(f"val_fraction={val_fraction}: expected at least 0 and below 1")
    return with_val(_read(spec, label, data_dir, corrupt_limit), val_fraction, seed)


def _read(spec: DataSpec, label: str, data_dir: str | Path | None, corrupt_limit: float) -> Dataset:
    if isinstance(spec, Mapping):
        return read_arrays(spec)
    if isinstance(spec, tuple):
        return read_arrays(dict(zip(("train_images", "train_labels"), spec, strict=True)))
    if isinstance(spec, str) and spec in BUILTIN:
        return open_builtin(spec, data_dir)
    if is_shards(str(spec)):
        return open_shards(str(spec), label, corrupt_limit)
    path = Path(spec).expanduser()
    if _is_parquet(path):
        return read_parquet(path, label, corrupt_limit)
    if path.is_dir():
        return read_folder(path)
    if path.is_file() and path.suffix in (".csv", ".tsv"):
        return read_csv(path, label)
    if path.is_file() and path.suffix == ".npz":
        return read_npz(path)
    if path.exists():
        raise DataError(f"{path}: not a data set; expected a folder, .csv, .parquet, .tar or .npz")
    raise DataError(_not_found(str(spec), path))


def _is_parquet(path: Path) -> bool:
    if path.is_dir():
        return not subfolders(path) and any(path.glob("*.parquet"))
    return path.suffix == ".parquet" if path.exists() else bool(re.search(r"[*?\[]", str(path)))


def _not_found(spec: str, path: Path) -> str:
    siblings = path.parent.iterdir() if path.parent.is_dir() else ()
    known = {f.name: str(f) for f in siblings if f.is_dir() or f.suffix in (".csv", ".tsv", ".parquet", ".npz", ".tar")}
    names = difflib.get_close_matches(path.name, [*known, *BUILTIN], n=3, cutoff=0.65)
    near = [known.get(name, name) for name in names]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"there is no file or folder {spec!r}{hint} (built-in data sets: {', '.join(BUILTIN)})"
