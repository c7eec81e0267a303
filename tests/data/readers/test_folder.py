"""Folders of class folders."""

from pathlib import Path

import pytest

from tests.data.small_data import CLASSES, ROWS, picture, write_folder
from vitkit.data.open import open_data
from vitkit.errors import DataError


def test_folder_oddities_are_noted(tmp_path: Path) -> None:
    write_folder(tmp_path, ROWS)
    (tmp_path / "train" / "ant" / "notes.txt").write_text("x")
    (tmp_path / "train" / "bee" / "IMG_1.HEIC").write_bytes(b"x")
    (tmp_path / "train" / "ant" / ".hidden.png").write_bytes(b"")
    (tmp_path / "train" / "ant" / "deeper").mkdir()
    (tmp_path / "train" / "ant" / "deeper" / "UPPER.PNG").write_bytes(picture(12345))
    (tmp_path / "train" / "loose.png").write_bytes(picture(1))
    (tmp_path / "train" / "nothing").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "train" / "ant" / "round").symlink_to(tmp_path / "train" / "ant")
    dataset = open_data(tmp_path)
    assert len(dataset.splits["train"]) == 31
    assert dataset.class_names == CLASSES
    notes = "\n".join(dataset.notes)
    assert "ant: ignored 1 files that are not images (.txt)\n" in notes
    assert "bee: ignored 1 files that are not images (.HEIC); export them as JPEG" in notes
    assert "nothing: ignored, it has no images" in notes
    assert "train: ignored 1 images that" in notes
    assert "next to the splits (docs)" in notes


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    dataset = open_data(
        write_folder(
            tmp_path, [("", c, b) for c, b in zip(["train", "bus"] * 5, map(picture, range(10)), strict=True)], False
        )
    )
    assert dataset.class_names == ["bus", "train"]


def test_numbered_folders_are_sorted_by_number(tmp_path: Path) -> None:
    dataset = open_data(write_folder(tmp_path, [("", str(i), picture(i)) for i in range(12)], False), val_fraction=0)
    assert dataset.class_names == [str(i) for i in range(12)]


def test_the_error_of_a_folder_without_images_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="no images in class folders; expected CLASS/IMAGE"):
        open_data(tmp_path)


def test_a_single_class_folder_is_recognised(tmp_path: Path) -> None:
    root = write_folder(tmp_path, [("", c, picture(i)) for i, c in enumerate("ab")], False)
    with pytest.raises(DataError, match="its images are in no class folder; name the folder above it"):
        open_data(root / "a")


def test_a_class_folder_may_start_with_underscores(tmp_path: Path) -> None:
    write_folder(tmp_path, [("", c, picture(i)) for i, c in enumerate(["__background__", "cat"] * 5)], splits=False)
    for system in ("__pycache__", "__MACOSX"):
        (tmp_path / system).mkdir()
        (tmp_path / system / "left.png").write_bytes(picture(99))
    dataset = open_data(tmp_path)
    assert dataset.class_names == ["__background__", "cat"]
    assert sum(map(len, dataset.splits.values())) == 10


def test_spaces_around_the_name_of_a_class_folder_make_no_other_class(tmp_path: Path) -> None:
    dataset = open_data(
        write_folder(tmp_path, [("", c, picture(i)) for i, c in enumerate([" cat", "cat", "dog"] * 4)], splits=False)
    )
    assert dataset.class_names == ["cat", "dog"]
    assert "spaces around class names were removed, such as those of ' cat'" in dataset.notes


def test_a_class_with_another_spelling_in_val_is_refused(tmp_path: Path) -> None:
    rows = [("train", "cat"), ("train", "dog"), ("val", "Cat"), ("val", "dog")]
    write_folder(tmp_path, [(split, label, picture(i)) for i, (split, label) in enumerate(rows)])
    with pytest.raises(DataError, match="class 'Cat' in val, 'cat' in train differ only in spelling: use one name"):
        open_data(tmp_path)


def test_classes_of_one_split_may_differ_in_case_and_are_noted(tmp_path: Path) -> None:
    rows = [("train", "A"), ("train", "a"), ("val", "a")]
    dataset = open_data(write_folder(tmp_path, [(s, c, picture(i)) for i, (s, c) in enumerate(rows)]))
    assert dataset.class_names == ["A", "a"]
    assert dataset.notes == ("these classes differ only in spelling: 'A' and 'a'",)
