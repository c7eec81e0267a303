"""Parquet files, in memory and read row group by row group."""

import json
from pathlib import Path

import pytest

from tests.data.small_data import ROWS, TRAIN, columns_of, contents, picture, write_parquet
from vitkit.data.dataset import ImageSubset, RawImage
from vitkit.data.open import open_data
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.data.readers import parquet
from vitkit.data.shards import reader as shards
from vitkit.errors import CorruptImageError, DataError, UnknownNameError

SEEN = Preprocess(size=8)


def test_another_label_column(tmp_path: Path) -> None:
    table = columns_of(ROWS) | {"fine": [f"{r[1]}-{i % 2}" for i, r in enumerate(ROWS)]}
    path = write_parquet(tmp_path / "x.parquet", table)
    assert len(open_data(path, label="fine").class_names) == 6
    with pytest.raises(
        UnknownNameError, match=r"unknown column 'fin'; did you mean 'fine'.*x.parquet has image, label, split"
    ):
        open_data(path, label="fin")


def test_class_names_of_huggingface_and_integer_labels(tmp_path: Path) -> None:
    features = {"info": {"features": {"label": {"names": ["zebra", "ape"], "_type": "ClassLabel"}}}}
    table = {"img": [{"bytes": picture(i), "path": f"{i}.png"} for i in range(8)], "label": [i % 2 for i in range(8)]}
    path = write_parquet(tmp_path / "train-0.parquet", table, {b"huggingface": json.dumps(features).encode()})
    dataset = open_data(path, val_fraction=0)
    assert dataset.class_names == ["zebra", "ape"]
    assert dataset.has_class_names
    assert dataset.splits["train"].images.name(0) in {f"{i}.png" for i in range(0, 8, 2)}


@pytest.mark.parametrize(("labels", "message"), [
    ([0, -1], "label -1 is negative"), ([0, 10**6], "label 1000000 is too large"), (["a", None], r"\[1\]: no label"),
])  # fmt: skip
def test_wrong_parquet_labels(tmp_path: Path, labels: list[object], message: str) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"image": [picture(0), picture(1)], "label": labels})
    with pytest.raises(DataError, match=message):
        open_data(path)


def test_a_row_without_bytes_is_a_corrupt_image(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"image": [picture(0), None], "label": ["a", "b"]})
    train = open_data(path, val_fraction=0).splits["train"]
    with pytest.raises(CorruptImageError, match=r"x\.parquet\[1\]: has no image bytes"):
        train.images[1]


def test_large_parquet_files_are_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, rows in enumerate((ROWS[:11], ROWS[11:])):
        write_parquet(tmp_path / "p" / f"{number}.parquet", columns_of(rows))
    held = open_data(tmp_path / "p")
    monkeypatch.setattr(parquet, "MEMORY_LIMIT", 0)  # a fixed number: free memory must not decide the order of samples
    parts = open_data(tmp_path / "p")
    assert isinstance(parts.splits["val"].images, ImageSubset)
    assert isinstance(parts.splits["val"].images.images, shards.ShardImages)
    assert {k: sorted(v) for k, v in contents(parts).items()} == {k: sorted(v) for k, v in contents(held).items()}
    assert parts.fingerprint == held.fingerprint
    assert contents(parts)["train"] == [(r[1], r[2]) for r in TRAIN]  # from beginning to end


def test_an_unreadable_image_of_a_streamed_file_is_left_out_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(parquet, "MEMORY_LIMIT", 0)
    rows = [*ROWS[:9], ("train", "ant", b"no image")]
    write_parquet(tmp_path / "p.parquet", columns_of(rows))
    train = open_data(tmp_path / "p.parquet", val_fraction=0).splits["train"]
    looked: list[str] = []

    def check(encoded: RawImage, name: str) -> None:
        looked.append(name)
        SEEN.check_decodable(encoded, name)

    for times in (10, 1):  # the second run looks again at what was bad alone
        kept, bad = filter_readable(train, check, 0.2, cache=ReadabilityCache("p"))
        assert (len(kept), len(bad), len(looked)) == (9, 1, times)
        looked.clear()
