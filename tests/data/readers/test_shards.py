"""Shards of vitkit and of others give the data set of the folder of the same images."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.data.small_data import CLASSES, LABELLED, ROWS, TRAIN, contents, write_folder, write_tar
from vitkit.data.open import open_data
from vitkit.data.shards.writer import pack
from vitkit.errors import DataError, MissingExtraError


@pytest.mark.parametrize("kind", LABELLED)
def test_a_webdataset_gives_the_data_set_of_the_folder(kind: str, tmp_path: Path) -> None:
    shuffled = [ROWS[i] for i in np.random.default_rng(1).permutation(len(ROWS))]
    for split in ("train", "val"):
        rows = [row for row in shuffled if row[0] == split]
        for number, part in enumerate((rows[:5], rows[5:])):  # uneven
            write_tar(tmp_path / "web" / f"{split}-{number:03}.tar", part, LABELLED[kind])
    folder, web = open_data(write_folder(tmp_path / "f", ROWS)), open_data(tmp_path / "web")
    assert contents(web) == contents(folder)
    assert web.fingerprint == folder.fingerprint
    assert contents(open_data(tmp_path / "web")) == contents(folder)  # from what was kept of the scan


def test_numbers_in_cls_files_are_class_indices(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", TRAIN, lambda label: {"cls": str(CLASSES.index(label) + 1).encode()})
    data = open_data(tmp_path / "a.tar", val_fraction=0)
    assert list(data.class_names) == ["0", "1", "2", "3"]
    assert not data.has_class_names
    assert data.splits["train"].labels.tolist() == [1] * 10 + [2] * 10 + [3] * 10


def test_patterns_select_shards_of_an_index(tmp_path: Path) -> None:
    data = open_data(write_folder(tmp_path / "f", ROWS))
    pack(data, tmp_path / "s", shard_size=10_240)
    names = sorted(p.name for p in (tmp_path / "s").glob("train-*.tar"))
    assert len(names) > 2
    whole = open_data(f"{tmp_path}/s/*.tar")
    assert contents(whole) == contents(data)
    train = open_data(f"{tmp_path}/s/train-*.tar", val_fraction=0)
    assert contents(train) == {"train": contents(data)["train"]}
    assert list(train.class_names) == CLASSES
    two = open_data(f"{tmp_path}/s/train-{{00000..00001}}.tar", val_fraction=0)
    index = json.loads((tmp_path / "s" / "index.json").read_text())
    assert len(two.splits["train"]) == sum(s["images"] for s in index["shards"] if s["file"] in names[:2])


def test_the_error_of_a_missing_client_says_what_to_install() -> None:
    try:
        import gcsfs  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match=r"reading gs:// needs gcsfs.*vitkit\[gcs\]"):
            open_data("gs://bucket/train-*.tar")
    with pytest.raises(DataError, match="Protocol not known: nowhere"):
        open_data("nowhere://bucket/train-*.tar")


def test_packed_arrays_keep_codes_as_class_names(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", train_images=pixels, train_labels=np.array([1990, 2005, 20345] * 4))
    pack(open_data(tmp_path / "x.npz", val_fraction=0), tmp_path / "s")
    data = open_data(tmp_path / "s", val_fraction=0)
    assert list(data.class_names) == ["1990", "2005", "20345"]
    assert not data.has_class_names
