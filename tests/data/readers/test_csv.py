"""CSV files of paths and labels."""

from pathlib import Path

import numpy as np
import pytest

from tests.data.small_data import ROWS, picture, write_csv
from vitkit.data.open import open_data
from vitkit.errors import CorruptImageError, UsageError


def test_numbers_in_a_csv_are_class_indices(tmp_path: Path) -> None:
    rows = [("train", str(i % 3 * 2), picture(i)) for i in range(12)]
    dataset = open_data(write_csv(tmp_path, rows, ("image", "label")), val_fraction=0)
    assert dataset.class_names == ["0", "1", "2", "3", "4"]
    assert not dataset.has_class_names
    assert np.bincount(dataset.splits["train"].labels).tolist() == [4, 0, 4, 0, 4]
    assert dataset.notes == ("2 of the 5 classes have no images",)


@pytest.mark.parametrize(("text", "message"), [
    ("path,label\n", "no images found"),
    ("file,label\na.png,x\n", "unknown column 'image'"),
    ("path,label\na.png,\n", "line 2: no label"),
    ("path,label,split\na.png,x,middle\n", "unknown split 'middle'.*line 2"),
    ("path,label\na.png,x\nb.png,y\n", "none of its images exists, such as .*a.png"),
    ("", "unknown column"),
])  # fmt: skip
def test_the_error_of_a_wrong_csv_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        open_data(tmp_path / "x.csv")


def test_csv_with_semicolons_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(0))
    (tmp_path / "b.png").write_bytes(picture(1))
    (tmp_path / "x.csv").write_text("path;label\na.png;ä\nb.png;b, c\n", encoding="utf-8-sig")
    assert open_data(tmp_path / "x.csv", val_fraction=0).class_names == ["b, c", "ä"]


def test_a_missing_file_among_others_fails_when_it_is_read(tmp_path: Path) -> None:
    path = write_csv(tmp_path, ROWS)
    (tmp_path / "img" / "3.png").unlink()
    train = open_data(path).splits["train"]
    failed = [i for i in range(len(train)) if train.images.name(i).endswith("/3.png")]
    with pytest.raises(CorruptImageError, match=r"3\.png: there is no such file"):
        train.images[failed[0]]


def test_codes_with_gaps_are_names_of_classes(tmp_path: Path) -> None:
    codes = ("1990", "2005", "20345")
    dataset = open_data(
        write_csv(tmp_path, [("train", codes[i % 3], picture(i)) for i in range(12)], ("image", "label"))
    )
    assert dataset.class_names == ["1990", "2005", "20345"]
    assert dataset.notes[0] == "the labels from 1990 to 20345 have 3 values: each is a class, named by the label"


def test_labels_that_identify_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="label 5000003 is too large for a class index; choose another column"):
        open_data(write_csv(tmp_path, [("train", str(5000000 + i), picture(i)) for i in range(4)], ("image", "label")))


def test_spaces_around_labels_are_no_part_of_them(tmp_path: Path) -> None:
    rows = [("train", label, picture(i)) for i, label in enumerate([" cat", "cat ", "dog", "dog"])]
    assert open_data(write_csv(tmp_path / "names", rows, ("image", "label"))).class_names == ["cat", "dog"]
    rows = [("train", label, picture(i)) for i, label in enumerate([" 0", "1 ", "1", "0"])]
    assert not open_data(write_csv(tmp_path / "numbers", rows, ("image", "label"))).has_class_names
