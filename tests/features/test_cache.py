from pathlib import Path

import numpy as np
import pytest
import torch

from tests.features.conftest import SEEN, small_model
from vitkit.data.dataset import ArrayImages, Split
from vitkit.features import cache as module
from vitkit.features import cached_features
from vitkit.model import ViT
from vitkit.runtime.threaded_inference import torch_threads


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of images of each extraction."""
    calls: list[int] = []
    original = module.extract_features

    def counting(model: ViT, split: Split, *rest: object, **named: object) -> object:
        calls.append(len(split))
        return original(model, split, *rest, **named)

    monkeypatch.setattr(module, "extract_features", counting)
    return calls


def test_a_second_call_reads_from_the_cache(model: ViT, split: Split, made: list[int]) -> None:
    first, second = (cached_features(model, split, SEEN) for _ in range(2))
    assert made == [30]
    assert np.array_equal(first.values, second.values)
    assert np.array_equal(first.indices, second.indices)


def test_the_cache_ignores_the_classifier_and_the_labels(model: ViT, split: Split, made: list[int]) -> None:
    cached_features(model, split, SEEN)
    model.reset_classifier(7)
    cached_features(model, Split(split.images, split.labels[::-1].copy()), SEEN)
    assert made == [30]


def test_other_weights_preprocessing_images_or_order_miss_the_cache(model: ViT, split: Split, made: list[int]) -> None:
    cached_features(model, split, SEEN)
    cached_features(model, split, SEEN.replace(mean=(0.4,)))
    cached_features(model, split.subset(np.arange(29)), SEEN)
    cached_features(model, split.subset(np.arange(30)[::-1].copy()), SEEN)
    pixels = split.images.pixels.copy()
    pixels[5, 0, 0] ^= 1
    cached_features(model, Split(ArrayImages(pixels, "made"), split.labels), SEEN)
    cached_features(small_model(pooling="mean"), split, SEEN)
    with torch.no_grad():
        model.blocks[1].mlp.fc2.bias[3] += 1e-3
    cached_features(model, split, SEEN)
    assert made == [30, 30, 29, 30, 30, 30, 30]


def test_another_number_of_threads_or_batch_size_misses_the_cache(model: ViT, split: Split, made: list[int]) -> None:
    """They change the rounding, and a linear probe must not depend on what an earlier run has left in the cache."""
    for threads, batch_size in ((1, 64), (2, 64), (1, 32), (1, 64)):
        with torch_threads(threads):
            cached_features(model, split, SEEN, batch_size=batch_size)
    assert made == [30, 30, 30]


@pytest.mark.parametrize("place", [-3, -1000, 40])
def test_a_damaged_file_is_replaced(model: ViT, split: Split, made: list[int], cache: Path, place: int) -> None:
    first = cached_features(model, split, SEEN)
    (path,) = cache.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    again = cached_features(model, split, SEEN)
    assert made == [30, 30]
    assert np.array_equal(first.values, again.values)
    cached_features(model, split, SEEN)
    assert made == [30, 30]


def test_the_least_recently_used_files_are_removed_first(
    model: ViT, split: Split, made: list[int], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    parts = [split.subset(np.arange(n)) for n in (10, 20, 30)]
    for age, part in enumerate(parts[:2]):
        cached_features(model, part, SEEN)
        for path in cache.glob("*.safetensors"):
            if path.stat().st_mtime > 1e9:
                os.utime(path, (1000 + age, 1000 + age))
    cached_features(model, parts[0], SEEN)  # used again: now the newer one
    monkeypatch.setattr(module, "MAX_BYTES", sum(p.stat().st_size for p in cache.iterdir()) + 1000)
    cached_features(model, parts[2], SEEN)
    cached_features(model, parts[0], SEEN)
    assert made == [10, 20, 30], "the first was kept"
    cached_features(model, parts[1], SEEN)
    assert made == [10, 20, 30, 20], "the second was not"


def test_an_unwritable_cache_is_no_error(
    model: ViT, split: Split, made: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "file" / "below"))
    first, second = (cached_features(model, split, SEEN) for _ in range(2))
    assert made == [30, 30], "there was nowhere to keep them"
    assert np.array_equal(first.values, second.values)
