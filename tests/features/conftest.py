from pathlib import Path

import numpy as np
import pytest

from vitkit.data.dataset import ArrayImages, Split
from vitkit.data.preprocess import Preprocess
from vitkit.model import ModelInfo, ViT, create_model

SEEN = Preprocess(size=(8, 8), channels=1, crop_fraction=1.0, mean=(0.5,), std=(0.25,))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.fixture
def model() -> ViT:
    return small_model()


def small_model(**changes: object) -> ViT:
    settings = dict(image_size=8, patch_size=4, in_channels=1, width=16, depth=2, heads=2, head_width=8, mlp_width=32)
    made = create_model("vit_tiny_patch16_224", seed=0, **{**settings, "num_classes": 3, **changes}).eval()
    made.info = ModelInfo(class_names=("a", "b", "c"), preprocess=SEEN)
    return made


@pytest.fixture
def split() -> Split:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    return Split(ArrayImages(pixels, "made"), np.arange(30) % 3)
