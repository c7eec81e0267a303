"""The index files of packed shards."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.small_data import CLASSES, ROWS, write_folder
from vitkit.data.open import open_data
from vitkit.data.shards.index import INDEX, SAMPLES, PackedStrings, has_index, read_index
from vitkit.data.shards.writer import pack
from vitkit.errors import DataError


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    pack(open_data(write_folder(tmp_path / "photos", ROWS)), tmp_path / "shards", shard_size=20_480)
    return tmp_path / "shards"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_packed_strings_are_the_strings(strings: list[str]) -> None:
    assert list(PackedStrings.of(strings)) == strings


def test_the_index_says_where_every_image_is(shards: Path) -> None:
    assert has_index(str(shards))
    assert not has_index(str(shards.parent))
    index = read_index(str(shards))
    assert index.head["class_names"] == CLASSES
    assert all(shard.has_packed_size for shard in index.shards)
    labels, samples = index.splits["train"]
    expected = {(label, content) for split, label, content in ROWS if split == "train"}
    found = set()
    for k, s, offset, size in zip(labels, samples.shard, samples.offset, samples.size, strict=True):
        found.add((CLASSES[k], Path(index.shards[s].path).read_bytes()[offset : offset + size]))
    assert found == expected
    part = samples.take(np.array([4, 1]))
    assert list(part.names) == [samples.names[4], samples.names[1]]
    assert part.offset.tolist() == samples.offset[[4, 1]].tolist()


def test_a_missing_shard_is_known_to_be_missing(shards: Path) -> None:
    (shards / "train-00001.tar").unlink()
    assert [Path(s.path).name for s in read_index(str(shards)).shards if not s.has_packed_size] == ["train-00001.tar"]


def test_an_index_that_does_not_fit_is_an_error_that_says_what_to_do(shards: Path) -> None:
    head = json.loads((shards / INDEX).read_text(encoding="utf-8"))
    for change, message in (
        ({"vitkit_shards": 2}, "not an index of version 1; pack the data again"),
        ({"samples_sha256": "0"}, "samples.npz: does not belong to index.json; copy both again"),
        ({"shards": [{"file": "a.tar"}]}, "cannot be read as an index of shards"),
    ):
        (shards / INDEX).write_text(json.dumps(head | change), encoding="utf-8")
        with pytest.raises(DataError, match=message):
            read_index(str(shards))
    (shards / INDEX).write_text(json.dumps(head), encoding="utf-8")
    (shards / SAMPLES).unlink()
    with pytest.raises(DataError, match=r"samples\.npz is missing; `vitkit pack` writes it"):
        read_index(str(shards))
