"""Shards and back: the same images in the same order under the same names, and the same bytes each time."""

import hashlib
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.data.small_data import CLASSES, ROWS, contents, write_folder
from vitkit.data.dataset import ArrayImages, Dataset
from vitkit.data.open import open_data
from vitkit.data.shards.writer import pack, unpack
from vitkit.errors import DataError, UsageError

FORMATS = ["tar", "parquet"]
SMALL = 4_000  # bytes: several shards for a few tiny pictures


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "photos", ROWS)


@pytest.mark.parametrize("to", FORMATS)
def test_packed_images_are_those_of_the_folder_in_order(folder: Path, to: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")
    before = open_data(folder)
    packed = pack(before, tmp_path / "shards", to=to, shard_size=SMALL)
    assert packed.shards > 2
    after = open_data(tmp_path / "shards")
    assert contents(after) == contents(before)
    assert list(after.class_names) == CLASSES
    assert after.fingerprint == before.fingerprint
    assert after.name == "photos"


@pytest.mark.parametrize("to", FORMATS)
def test_a_validation_split_is_drawn_from_shards_as_from_the_folder(to: str, tmp_path: Path) -> None:
    train = [row for row in ROWS if row[0] == "train"]
    folder = write_folder(tmp_path / "photos", train, splits=False)
    pack(open_data(folder, val_fraction=0), tmp_path / "shards", to=to, shard_size=SMALL)
    drawn, again = (open_data(data, seed=3) for data in (folder, tmp_path / "shards"))
    assert contents(again) == contents(drawn)
    assert len(again.splits["val"]) == 3


@pytest.mark.parametrize("to", FORMATS)
def test_packing_and_unpacking_restores_the_files(folder: Path, to: str, tmp_path: Path) -> None:
    pack(open_data(folder), tmp_path / "shards", to=to, shard_size=SMALL)
    unpack(open_data(tmp_path / "shards"), tmp_path / "back")
    assert tree(tmp_path / "back") == tree(folder)


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize("to", FORMATS)
def test_shards_have_the_requested_size_and_right_checksums(folder: Path, to: str, tmp_path: Path) -> None:
    pack(open_data(folder), tmp_path / "shards", to=to, shard_size=25_000)
    index = json.loads((tmp_path / "shards" / "index.json").read_text(encoding="utf-8"))
    assert sum(shard["images"] for shard in index["shards"]) == len(ROWS)
    for shard in index["shards"]:
        content = (tmp_path / "shards" / shard["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == shard["sha256"]
        assert len(content) == shard["bytes"]
        assert len(content) <= 25_000
    if to == "tar":  # 9 pictures of 2,048 bytes with their headers and labels, and the end: two records of 10,240
        assert [shard["images"] for shard in index["shards"]] == [9, 9, 9, 3, 9]


def test_equal_data_sets_give_equal_bytes(folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        pack(open_data(folder), tmp_path / name, shard_size=SMALL)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_train_is_written_shuffled_and_val_in_order(folder: Path, tmp_path: Path) -> None:
    """So that a few neighbouring shards hold every class, and validation reads from beginning to end."""
    pack(open_data(folder), tmp_path / "shards")
    for split, shuffled in (("train", True), ("val", False)):
        with tarfile.open(tmp_path / "shards" / f"{split}-00000.tar") as tar:
            labels = [int(tar.extractfile(m).read()) for m in tar if m.name.endswith(".cls")]  # type: ignore[union-attr]
        assert (labels != sorted(labels)) == shuffled
        assert sorted(labels) == [k for k in range(3) for _ in range(10 if shuffled else 3)]


@pytest.mark.parametrize("shape", [(8, 8), (6, 4, 3), (5, 5, 1), (4, 4, 4)])
@pytest.mark.parametrize("to", FORMATS)
def test_arrays_are_read_back_as_arrays(shape: tuple[int, ...], to: str, tmp_path: Path) -> None:
    chance = np.random.default_rng(0)
    arrays = {f"{s}_images": chance.integers(0, 256, (n, *shape), np.uint8) for s, n in (("train", 30), ("test", 7))}
    labels = {f"{s}_labels": np.arange(n) % 3 for s, n in (("train", 30), ("test", 7))}
    np.savez(tmp_path / "a.npz", **arrays, **labels)
    before = open_data(tmp_path / "a.npz")
    pack(open_data(tmp_path / "a.npz", val_fraction=0), tmp_path / "shards", to=to, shard_size=SMALL)
    after = open_data(tmp_path / "shards")
    assert after.has_class_names is before.has_class_names is False
    assert after.fingerprint == before.fingerprint
    for name, split in before.splits.items():
        images = after.splits[name].images
        assert isinstance(images, ArrayImages)
        assert isinstance(split.images, ArrayImages)
        assert np.array_equal(images.pixels, split.images.pixels)
        assert np.array_equal(after.splits[name].labels, split.labels)


def test_a_corrupt_image_is_named_and_left_out_below_the_limit(folder: Path, tmp_path: Path) -> None:
    (folder / "train" / "ant" / "bad.png").write_bytes(b"no image")
    data = open_data(folder)
    with pytest.raises(DataError, match=r"1 of 40 images cannot be read.*bad.png"):
        pack(data, tmp_path / "none")
    assert not list((tmp_path / "none").iterdir())  # shards without an index are of no use
    packed = pack(data, tmp_path / "shards", corrupt_limit=0.05)
    assert [Path(failure.name).name for failure in packed.left_out] == ["bad.png"]
    assert len(open_data(tmp_path / "shards").splits["train"]) == 30
    index = json.loads((tmp_path / "shards" / "index.json").read_text(encoding="utf-8"))
    assert index["left_out"][0]["name"].endswith("ant/bad.png")


def test_a_file_with_the_name_of_the_folder_is_not_removed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious", encoding="utf-8")
    for work in (pack, unpack):
        with pytest.raises(UsageError, match="out is a file: choose another folder"):
            work(open_data(folder, val_fraction=0), tmp_path / "out")


def test_a_folder_that_is_not_empty_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious", encoding="utf-8")
    for work in (pack, unpack):
        with pytest.raises(UsageError, match="is not empty"):
            work(open_data(folder), tmp_path / "out")
    assert tree(tmp_path / "out") == {"mine.txt": b"precious"}


def test_class_names_cannot_lead_outside_the_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "photos", ROWS)
    data = open_data(folder)
    odd = Dataset(data.name, ["../../up", "..", "a/b"], data.splits)
    pack(odd, tmp_path / "shards")
    unpack(open_data(tmp_path / "shards"), tmp_path / "deep" / "er" / "back")
    written = {p.relative_to(tmp_path / "deep" / "er" / "back").parts[1] for p in tmp_path.glob("deep/**/*.png")}
    assert written == {"_.._.._up", "_..", "a_b"}
    assert {p.name for p in tmp_path.iterdir()} == {"photos", "shards", "deep"}


def test_files_with_the_same_name_are_both_kept(tmp_path: Path) -> None:
    (a, *_, b) = [row[2] for row in ROWS]
    for sub, content in (("x", a), ("y", b)):
        (tmp_path / "photos" / "ant" / sub).mkdir(parents=True)
        (tmp_path / "photos" / "ant" / sub / "same.png").write_bytes(content)
    pack(open_data(tmp_path / "photos", val_fraction=0), tmp_path / "shards")
    unpack(open_data(tmp_path / "shards", val_fraction=0), tmp_path / "back")
    assert set(tree(tmp_path / "back")) == {"ant/same.png", "ant/same-2.png"}
    assert sorted(tree(tmp_path / "back").values()) == sorted([a, b])


def test_other_libraries_read_what_is_packed(folder: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="pip install datasets")
    pack(open_data(folder), tmp_path / "p", to="parquet", shard_size=SMALL)
    pack(open_data(folder), tmp_path / "t", to="tar", shard_size=SMALL)
    expected = sorted(hashlib.sha256(row[2]).hexdigest() + row[1] for row in ROWS if row[0] == "train")
    files = {"train": [str(p) for p in sorted((tmp_path / "p").glob("train-*.parquet"))]}
    rows = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    assert rows.features["label"].names == CLASSES
    found = [
        hashlib.sha256(row["image"]["bytes"]).hexdigest() + CLASSES[row["label"]]
        for row in rows.cast_column("image", datasets.Image(decode=False))
    ]
    assert sorted(found) == expected
    files = {"train": [str(p) for p in sorted((tmp_path / "t").glob("train-*.tar"))]}
    rows = datasets.load_dataset("webdataset", data_files=files, split="train", streaming=True)
    found = [
        hashlib.sha256(row["png"]["bytes"]).hexdigest() + CLASSES[int(row["cls"])]
        for row in rows.cast_column("png", datasets.Image(decode=False))
    ]
    assert sorted(found) == expected
