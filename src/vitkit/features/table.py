"""Features as a file for other tools: .npz for NumPy, .parquet for tables."""

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
class Table:
    features: np.ndarray  # (N, D) float32
    labels: np.ndarray  # (N,) int64, into class_names
    names: Sequence[str]  # what the data set calls the images
    split: Sequence[str]
    class_names: Sequence[str]

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def of(cls, found: Features, data: Dataset, split: str) -> "Table":
        images = data.splits[split].images
        names = [images.name(int(i)) for i in found.kept]
        labels = data.splits[split].labels[found.kept]
        return cls(found.values, labels, names, [split] * len(found), data.class_names)

    @classmethod
    def join(cls, parts: "Sequence[Table]") -> "Table":
        features, labels = (np.concatenate(rows) for rows in zip(*((p.features, p.labels) for p in parts), strict=True))
        names, split = ([n for p in parts for n in p.names], [s for p in parts for s in p.split])
        return cls(features, labels, names, split, parts[0].class_names)


def writer(path: str) -> Callable[[Table], None]:
    """What writes a table to this path, by its ending."""
    ending = Path(path).suffix
    if ending not in _FORMATS:
        raise UsageError(f"--out {path}: expected a name that ends in {' or '.join(_FORMATS)}")
    to_bytes = _FORMATS[ending]
    if ending == ".parquet":
        _pyarrow()
    return lambda table: write_atomic(Path(path), to_bytes(table))


def _npz(table: Table) -> bytes:
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


def _parquet(table: Table) -> bytes:
    _pyarrow()
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


def _pyarrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401  # asked for early, used late
    except ImportError as error:
        raise MissingExtraError("writing parquet", "pyarrow", "data") from error


_FORMATS: dict[str, Callable[[Table], bytes]] = {".npz": _npz, ".parquet": _parquet}
