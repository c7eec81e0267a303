"""Open a data set, whatever its format."""

from pathlib import Path

from vitkit.data.dataset import Dataset
from vitkit.data.pipeline import CORRUPT_LIMIT
from vitkit.data.readers.builtin import BUILTIN, open_builtin
from vitkit.data.readers.tables import READERS
from vitkit.data.shards.stream import is_shards, open_shards
from vitkit.data.split import with_val
from vitkit.errors import DataError, UnknownNameError, UsageError


def open_data(
    spec: str | Path,
    *,
    label: str = "label",
    data_dir: str | Path | None = None,
    seed: int = 0,
    val_fraction: float = 0.1,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Dataset:
    """A folder of class folders, a CSV, parquet files (one, a folder or a pattern), an .npz of arrays, or a name; or
    shards, here or in an object store: the folder of `vitkit pack`, WebDataset tars (`stream.py`).

    `label` is the column of the class in CSV and parquet. Where there is a train but no val split, `val_fraction` of
    train is set aside, drawn by `seed`, and noted; 0 leaves train whole. A test split is never made. `corrupt_limit`:
    the share of images that may lie in shards that are missing or broken.
    """
    if not 0 <= val_fraction < 1:
        raise UsageError(f"val_fraction={val_fraction}: expected at least 0 and below 1")
    if isinstance(spec, str) and spec in BUILTIN:
        return with_val(open_builtin(spec, data_dir), val_fraction, seed)
    if is_shards(str(spec)):
        return with_val(open_shards(str(spec), label, corrupt_limit), val_fraction, seed)
    path = Path(spec).expanduser()
    for fits, read in READERS:
        if fits(path):
            return with_val(read(path, label), val_fraction, seed)
    if path.exists():
        raise DataError(f"{path}: not a data set; expected a folder, .csv, .parquet, .tar or .npz")
    raise UnknownNameError("data set", str(spec), BUILTIN, "nor is there such a file or folder")
