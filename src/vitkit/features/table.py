"""Write features to a file for other tools: .npz for NumPy, .parquet for tables."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.atomic import write_atomic
from vitkit.data.dataset import Dataset
from vitkit.errors import MissingExtraError, UsageError
from vitkit.features.extract import Features


@dataclass(frozen=True)
class FeatureTable:
    """One row per image: its features, label, name and split."""

    features: np.ndarray  # (N, D) float32
    labels: np.ndarray  # (N,) int64, into class_names
    names: Sequence[str]  # path of the image, or its position in the source
    split: Sequence[str]
    class_names: Sequence[str]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def from_splits(cls, features: Mapping[str, Features], data: Dataset) -> "FeatureTable":
        """Join the features of several splits of a data set."""
        rows = [(name, found, data.splits[name]) for name, found in features.items()]
        return cls(
            np.concatenate([found.values for _, found, _ in rows]),
            np.concatenate([split.labels[found.indices] for _, found, split in rows]),
            [split.images.name(int(i)) for _, found, split in rows for i in found.indices],
            [name for name, found, _ in rows for _ in found.indices],
            data.class_names,
        )


def table_writer(path: str) -> Callable[[FeatureTable], None]:
    """Return the function that writes a table to `path`, chosen by its suffix. Raise at once if `path` is unusable."""
    suffix = Path(path).suffix
    if suffix not in _FORMATS:
        raise UsageError(f"--out {path}: expected a name that ends in {' or '.join(_FORMATS)}")
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401  # fail before the work, not after it
        except ImportError as error:
            raise MissingExtraError("writing parquet", "pyarrow", "data") from error
    return lambda table: write_atomic(Path(path), _FORMATS[suffix](table))


def _npz(table: FeatureTable) -> bytes:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in vars(table).items()}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _parquet(table: FeatureTable) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "features": pa.FixedSizeListArray.from_arrays(pa.array(table.features.reshape(-1)), table.features.shape[1]),
        "label": [table.class_names[k] for k in table.labels],
        "name": list(table.names),
        "split": list(table.split),
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


_FORMATS: dict[str, Callable[[FeatureTable], bytes]] = {".npz": _npz, ".parquet": _parquet}
