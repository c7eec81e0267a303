"""Open one data set in every format: the same images, classes, splits, order and fingerprint."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.small_data import CLASSES, ROWS, columns_of, contents, write_csv, write_folder, write_parquet
from vitkit.data.open import open_data
from vitkit.errors import DataError, UsageError


def test_every_format_gives_the_same_data_in_the_same_order(tmp_path: Path) -> None:
    shuffled = [ROWS[i] for i in np.random.default_rng(0).permutation(len(ROWS))]
    struct = columns_of(shuffled) | {"image": [{"bytes": r[2], "path": None} for r in shuffled]}
    write_csv(tmp_path / "c", ROWS)
    paths = columns_of(ROWS) | {"image": [f"img/{i}.png" for i in range(len(ROWS))]}
    shards = tmp_path / "s"
    for split, label in (("train", "train"), ("val", "validation")):
        part = {k: v for k, v in columns_of([r for r in ROWS if r[0] == split]).items() if k != "split"}
        write_parquet(shards / f"{label}-00000-of-00001.parquet", part)
    specs = [
        write_folder(tmp_path / "f", ROWS),
        write_folder(tmp_path / "g", [({"val": "valid"}.get(s, s), c, b) for s, c, b in ROWS], offset=11),
        tmp_path / "c" / "list.csv",
        write_parquet(tmp_path / "bytes.parquet", columns_of(shuffled)),
        write_parquet(tmp_path / "struct.parquet", struct),
        write_parquet(tmp_path / "c" / "paths.parquet", paths),
        shards,
        str(shards / "*.parquet"),
    ]
    first, *others = (open_data(spec) for spec in specs)
    assert first.class_names == CLASSES
    assert {k: len(v) for k, v in first.splits.items()} == {"train": 30, "val": 9}
    assert first.notes == ()
    expected = {s: sorted((c, b) for t, c, b in ROWS if t == s) for s in ("train", "val")}
    assert {s: sorted(rows) for s, rows in contents(first).items()} == expected
    for spec, other in zip(specs[1:], others, strict=True):
        assert contents(other) == contents(first), spec
        assert other.class_names == first.class_names
        assert other.fingerprint == first.fingerprint


@pytest.mark.parametrize("name", ["x.parquet", "x.npz", "x.csv"])
def test_an_unreadable_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe\0\x01 nonsense")
    with pytest.raises(DataError, match=name):
        open_data(tmp_path / name)


def test_what_is_not_found_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder 'cifar'; did you mean 'cifar10'"):
        open_data("cifar")
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match=r"folder '.*photo'; did you mean '.*photos'\? \(built-in data sets: digits, "):
        open_data(tmp_path / "photo")
    for name in ("tables.csv", "tables.py", "far.csv"):
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"'.*table'; did you mean '[^']*tables.csv'\? \("):
        open_data(tmp_path / "table")
    (tmp_path / "x.txt").touch()
    with pytest.raises(DataError, match="not a data set; expected a folder"):
        open_data(tmp_path / "x.txt")
    with pytest.raises(DataError, match="no parquet file matches"):
        open_data(str(tmp_path / "*.parquet"))
    with pytest.raises(UsageError, match="val_fraction=1"):
        open_data(tmp_path, val_fraction=1)


def test_groceries_from_parquet_and_from_an_unpacked_folder(shared_data: Path, tmp_path: Path) -> None:
    """Files are named by row number, where 10 comes before 2: sorted by name they have another order than the rows."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'vitkit[data]'")
    table = parquet.read_table(shared_data / "grocery.parquet", columns=["image", "label", "split"])
    for i, row in enumerate(table.to_pylist()):
        folder = tmp_path / row["split"] / row["label"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.jpg").write_bytes(row["image"])
    packed, unpacked = open_data(shared_data / "grocery.parquet"), open_data(tmp_path)
    assert packed.class_names == unpacked.class_names
    assert len(packed.class_names) == 43
    assert {k: len(v) for k, v in packed.splits.items()} == {"train": 2640, "val": 296}
    assert packed.fingerprint == unpacked.fingerprint
    for name, split in packed.splits.items():
        assert np.array_equal(split.labels, unpacked.splits[name].labels)
        assert all(split.images[i] == unpacked.splits[name].images[i] for i in range(len(split)))
    assert len(open_data(shared_data / "grocery.parquet", label="fine_label").class_names) == 81


def test_arrays_are_a_data_set_by_name_or_as_a_pair() -> None:
    images, labels = np.zeros((40, 6, 6, 3), dtype=np.uint8), np.arange(40) % 4
    images[:, 0, 0, 0] = np.arange(40)
    named = open_data({"train_images": images, "train_labels": labels, "class_names": list("abcd")})
    assert list(named.class_names) == list("abcd")
    pair = open_data((torch.from_numpy(images), torch.from_numpy(labels)), val_fraction=0.2)
    assert {name: len(split) for name, split in pair.splits.items()} == {"train": 32, "val": 8}
    with pytest.raises(DataError, match="arrays: train_images are float64"):
        open_data((images / 255, labels))
    with pytest.raises(DataError, match="arrays: no train_images"):
        open_data({"images": images})
