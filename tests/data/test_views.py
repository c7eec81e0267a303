from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitkit.data import loader
from vitkit.data.dataset import ArrayImages, FileImages, Split
from vitkit.data.loader import CachedView, StreamingView, make_view
from vitkit.data.preprocess import Preprocess
from vitkit.errors import CorruptImageError

SEEN = Preprocess(size=16)


@pytest.fixture
def split(tmp_path: Path) -> Split:
    """23 photographs, the sixth of them broken."""
    chance = np.random.default_rng(0)
    paths = [tmp_path / f"{i:02}.png" for i in range(23)]
    for i, path in enumerate(paths):
        Image.fromarray(chance.integers(0, 256, (20 + i, 30, 3), dtype=np.uint8)).save(path)
    paths[5].write_bytes(paths[5].read_bytes()[:200])
    return Split(FileImages([str(p) for p in paths]), np.arange(23))


def both(split: Split, monkeypatch: pytest.MonkeyPatch) -> tuple[CachedView, StreamingView]:
    held, kept, bad = make_view(split, SEEN, corrupt_limit=1.0)
    monkeypatch.setattr(loader, "MEMORY", 22 * 3 * 16 * 16 - 1)
    streamed, kept_too, bad_too = make_view(split, SEEN, corrupt_limit=1.0)
    assert isinstance(held, CachedView)
    assert isinstance(streamed, StreamingView)
    assert kept.labels.tolist() == kept_too.labels.tolist()
    assert bad == bad_too
    return held, streamed


@pytest.mark.parametrize("size", [1, 7, 22, 100])
def test_a_split_too_large_to_hold_gives_the_same_batches(
    split: Split, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, streamed = both(split, monkeypatch)
    one, other = list(held.batches(size)), list(streamed.batches(size))
    assert [len(b) for b in one] == [len(b) for b in other]
    assert sum(map(len, one)) == 22
    assert torch.equal(torch.cat(one), torch.cat(other))


def test_arrays_too_large_to_hold_twice_are_streamed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    seen = SEEN.replace(crop_fraction=1.0)
    monkeypatch.setattr(loader, "MEMORY", 0)
    streamed, _, _ = make_view(Split(ArrayImages(pixels, "a"), np.zeros(10, int)), seen, corrupt_limit=0.0)
    assert torch.equal(torch.cat(list(streamed.batches(4))).permute(0, 2, 3, 1), torch.from_numpy(pixels))


def test_an_image_that_goes_bad_later_is_an_error_with_its_name(split: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    _, streamed = both(split, monkeypatch)
    Path(streamed.split.images.name(20)).unlink()
    with pytest.raises(CorruptImageError, match=r"21\.png: there is no such file"):
        list(streamed.batches(4))
