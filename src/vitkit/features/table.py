"""Write features to a file for other tools: .npz for NumPy, .parquet for tables."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

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
    def from_features(cls, features: Features, data: Dataset, split: str) -> "FeatureTable":
        images = data.splits[split].images
        names = [images.name(int(i)) for i in features.indices]
        labels = data.splits[split].labels[features.indices]
        return cls(features.values, labels, names, [split] * len(features), data.class_names)

    @classmethod
    def concatenate(cls, parts: "Sequence[FeatureTable]") -> "FeatureTable":
        features, labels = (np.concatenate(rows) for rows in zip(*((p.features, p.labels) for p in parts), strict=True))
        names, split = ([n for p in parts for n in p.names], [s for p in parts for s in p.split])
        return cls(features, labels, names, split, parts[0].class_names)


def table_writer(path: str) -> Callable[[FeatureTable], None]:
    """Return the function that writes a table to `path`, chosen by its suffix. An unusable path is an error now."""
    suffix = Path(path).suffix
    if suffix not in _FORMATS:
        raise UsageError(f"--out {path}: expected a name that ends in {' or '.join(_FORMATS)}")
    if suffix == ".parquet":
        _require_pyarrow()
    return lambda table: write_atomic(Path(path), _FORMATS[suffix](table))


def _npz(table: FeatureTable) -> bytes:
    buffer = io.BytesIO()
    np.savez(
        buffer,
        features=table.features,
        labels=table.labels,
        names=np.array(table.names),
        split=np.array(table.split),
        class_names=np.array(table.class_names),
    )
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


def _require_pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401  # fail before the work, not after it
    except ImportError as error:
        raise MissingExtraError("writing parquet", "pyarrow", "data") from error


_FORMATS: dict[str, Callable[[FeatureTable], bytes]] = {".npz": _npz, ".parquet": _parquet}
