"""The index of WebDataset tars."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.small_data import LABELLED, TRAIN, write_tar
from vitkit.data.open import open_data
from vitkit.data.shards.storage import FileStat
from vitkit.data.shards.tar_index import index_tar
from vitkit.errors import DataError


def test_a_tar_that_has_changed_is_indexed_again(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", TRAIN, LABELLED["cls"])
    assert len(open_data(path, val_fraction=0).splits["train"]) == 30
    write_tar(path, TRAIN[:20], LABELLED["cls"])
    assert len(open_data(path, val_fraction=0).splits["train"]) == 20


def test_a_tar_truncated_anywhere_is_detected(tmp_path: Path) -> None:
    """Also between two of its files, where Python's reader sees a good end."""
    whole = write_tar(tmp_path / "a.tar", TRAIN[:3], LABELLED["cls"])
    assert not index_tar(FileStat(str(whole), 0, "whole"), "label").broken
    content = whole.read_bytes()
    end = len(content.rstrip(b"\0")) // 512 * 512 + 512
    for cut in range(0, end + 1, 256):
        (tmp_path / "b.tar").write_bytes(content[:cut])
        found = index_tar(FileStat(str(tmp_path / "b.tar"), cut, f"cut {tmp_path}"), "label")
        assert f"after {len(found.offset)} images" in found.broken, cut
        assert len(found.offset) < 3
        assert all(
            content[p : p + n] == TRAIN[i][2] for i, (p, n) in enumerate(zip(found.offset, found.size, strict=True))
        )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (lambda label: {}, "the image has no label; expected .cls, .json, .txt"),
        (lambda label: {"json": b'{"class": 1}'}, "no label under 'label'.*choose another key with --label"),
        (lambda label: {"cls": b" "}, "the label is empty"),
    ],
)
def test_a_sample_without_a_label_is_named(
    labels: Callable[[str], dict[str, bytes]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"a\.tar/\./some/0000.*{message}"):
        open_data(write_tar(tmp_path / "a.tar", TRAIN, labels))
