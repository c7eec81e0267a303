from pathlib import Path

import numpy as np
import pytest

from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.errors import UsageError
from vitkit.features.extract import Features
from vitkit.features.table import FeatureTable, table_writer


@pytest.fixture
def table() -> FeatureTable:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 8, 8), dtype=np.uint8)
    train, val = (
        Split(ArrayImages(pixels[rows], "made"), np.arange(6)[rows] % 2) for rows in (slice(0, 4), slice(4, 6))
    )
    data = Dataset("made", ["cat", "dog"], {"train": train, "val": val})
    values = rng.standard_normal((5, 3)).astype(np.float32)
    features = {"train": Features(values[:3], np.array([0, 1, 3])), "val": Features(values[3:], np.array([0, 1]))}
    return FeatureTable.from_splits(features, data)


def test_npz_holds_everything_by_row(table: FeatureTable, tmp_path: Path) -> None:
    table_writer(str(tmp_path / "f.npz"))(table)
    found = np.load(tmp_path / "f.npz")
    assert np.array_equal(found["features"], table.features)
    assert found["labels"].tolist() == [0, 1, 1, 0, 1]
    assert found["names"].tolist() == ["made[0]", "made[1]", "made[3]", "made[0]", "made[1]"]
    assert found["split"].tolist() == ["train"] * 3 + ["val"] * 2
    assert found["class_names"].tolist() == ["cat", "dog"]


def test_parquet_holds_everything_by_row(table: FeatureTable, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="pip install 'vitkit[data]'")
    table_writer(str(tmp_path / "f.parquet"))(table)
    rows = pq.read_table(tmp_path / "f.parquet").to_pylist()
    assert [r["label"] for r in rows] == ["cat", "dog", "dog", "cat", "dog"]
    assert [r["split"] for r in rows] == ["train"] * 3 + ["val"] * 2
    assert np.array_equal(np.array([r["features"] for r in rows], dtype=np.float32), table.features)
    assert rows[2]["name"] == "made[3]"


def test_another_suffix_is_refused_before_any_work() -> None:
    with pytest.raises(UsageError, match=r"f\.csv: expected a name that ends in \.npz or \.parquet"):
        table_writer("f.csv")
