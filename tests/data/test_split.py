"""Splits: drawn by content, stratified, reproducible."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.small_data import ROWS, columns_of, contents, picture, write_folder, write_parquet
from vitkit.data import dataset
from vitkit.data import split as arrange
from vitkit.data.dataset import ArrayImages, Split
from vitkit.data.open import open_data
from vitkit.data.split import stratified


def test_arrays_drawn_for_val_keep_their_numbers(tmp_path: Path) -> None:
    pixels = np.arange(20, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8)
    np.savez(tmp_path / "x.npz", train_images=pixels, train_labels=np.arange(20) % 2)
    data = open_data(tmp_path / "x.npz", val_fraction=0.2)
    for split in data.splits.values():
        assert [split.images.name(i) for i in range(len(split))] == [
            f"x:train[{int(split.images[i][0, 0])}]" for i in range(len(split))
        ]


def test_a_val_split_is_drawn_and_noted(tmp_path: Path) -> None:
    rows = [r for r in ROWS if r[0] == "train"]
    folder = write_folder(tmp_path / "f", rows, splits=False)
    dataset = open_data(folder, val_fraction=0.2)
    assert {k: np.bincount(v.labels).tolist() for k, v in dataset.splits.items()} == {"train": [8] * 3, "val": [2] * 3}
    assert dataset.notes == ("no val split: 6 of the 30 train images were set aside as val (stratified, 20%, seed 0)",)
    both = contents(dataset)
    assert sorted(both["train"] + both["val"]) == sorted((c, b) for _, c, b in rows)
    packed = open_data(write_parquet(tmp_path / "p.parquet", columns_of(rows)), val_fraction=0.2)
    assert contents(packed) == both
    assert packed.fingerprint == dataset.fingerprint
    assert contents(open_data(folder, val_fraction=0.2, seed=1)) != both
    assert list(open_data(folder, val_fraction=0).splits) == ["train"]


def test_stratified_split_keeps_copies_together_and_leaves_every_class_in_train() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 2, 2), dtype=np.uint8)
    pixels[20:40] = pixels[:20]  # every image of the class twice
    labels = np.r_[np.zeros(40, int), np.ones(18, int), 2, 3]
    for seed in range(20):
        chosen = stratified(Split(ArrayImages(pixels, "x"), labels), 0.25, seed)
        assert (chosen[:20] == chosen[20:40]).all()
        assert 10 <= chosen[:40].sum() <= 11
        assert chosen[40:58].sum() == 4  # round(4.5)
        assert not chosen[58:].any()  # a class of one stays where it can be learnt


def test_an_image_with_two_labels_is_never_in_both_splits() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (90, 4, 4), dtype=np.uint8)
    pixels[60:] = pixels[:30]  # images of class 0 again, as class 1
    labels = np.r_[np.zeros(60, int), np.ones(30, int)]
    for seed in range(20):
        chosen = stratified(Split(ArrayImages(pixels, "x"), labels), 0.25, seed)
        assert (chosen[60:] == chosen[:30]).all()
        assert chosen[:60].sum() >= 5
        alone = stratified(Split(ArrayImages(pixels[:60], "x"), labels[:60]), 0.25, seed)
        assert np.array_equal(chosen[30:60], alone[30:])  # images with one label are assigned as without the copies


def test_the_split_of_an_image_does_not_depend_on_its_position() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (50, 3, 3), dtype=np.uint8)
    labels, order = np.arange(50) % 2, np.random.default_rng(2).permutation(50)
    straight = stratified(Split(ArrayImages(pixels, "x"), labels), 0.3, 5)
    shuffled = stratified(Split(ArrayImages(pixels[order], "x"), labels[order]), 0.3, 5)
    assert np.array_equal(straight[order], shuffled)


def test_a_large_data_set_is_sorted_and_split_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (arrange, dataset):
        monkeypatch.setattr(module, "CONTENT_LIMIT", 8)
    rows = [r for r in ROWS if r[0] == "train"]
    folder = write_folder(tmp_path / "here", rows, splits=False)
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "hash_images", lambda images: pytest.fail("images were read"))
        whole = open_data(folder, val_fraction=0).splits["train"]
        made = open_data(folder, val_fraction=0.2)
    assert "by file name: exact copies" in made.notes[0]
    names = [whole.images.name(i) for i in range(30)]
    assert names == sorted(names)
    assert np.bincount(made.splits["val"].labels).tolist() == [2, 2, 2]
    moved = open_data(folder.rename(tmp_path / "there"), val_fraction=0.2)
    in_val = [[Path(d.splits["val"].images.name(i)).name for i in range(6)] for d in (made, moved)]
    assert in_val[0] == in_val[1]
    mark = moved.fingerprint
    Path(moved.splits["train"].images.name(0)).write_bytes(picture(4711))  # the first is always in the sample
    assert open_data(tmp_path / "there", val_fraction=0.2).fingerprint != mark


def test_a_test_split_is_never_drawn(tmp_path: Path) -> None:
    assert set(open_data(write_folder(tmp_path, ROWS)).splits) == {"train", "val"}


def test_a_data_set_may_have_only_a_test_split(tmp_path: Path) -> None:
    assert set(open_data(write_folder(tmp_path, [("test", c, b) for _, c, b in ROWS])).splits) == {"test"}
