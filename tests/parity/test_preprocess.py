"""Our evaluation preprocessing equals timm's in every pixel."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vitkit.data.preprocess import Preprocess

from .compare import peer


@pytest.fixture(scope="module")
def create_transform():  # type: ignore[no-untyped-def]  # timm's is not typed
    return peer("timm.data").create_transform


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


CROP_MODES = {"crop": "center", "squash": "squash", "pad": "border"}
SIZES = [(500, 375), (375, 500), (224, 224), (225, 224), (333, 1000), (50, 40), (31, 97), (1, 7), (640, 3)]


def compare(create_transform, image, size, fit, fraction, interpolation) -> None:  # type: ignore[no-untyped-def]
    ours = Preprocess(size=size, fit=fit, crop_fraction=fraction, interpolation=interpolation, mean=(0.3, 0.5, 0.7))
    theirs = create_transform(
        (3, *size), crop_pct=fraction, crop_mode=CROP_MODES[fit], interpolation=interpolation, mean=ours.mean,
        std=ours.std, is_training=False, use_prefetcher=True,
    )  # fmt: skip
    if fit == "pad" and min(image.size) / max(image.size) * min(size) < 1:
        return  # timm rounds such a thin image to zero pixels, and fails
    expected = np.asarray(theirs(image)).transpose(1, 2, 0)
    assert np.array_equal(ours.resize_and_crop(image), expected)


@pytest.mark.parametrize("fit", CROP_MODES)
@pytest.mark.parametrize("fraction", [1.0, 0.95, 0.9, 0.875])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "nearest"])
def test_square_sizes(create_transform, fit, fraction, interpolation) -> None:  # type: ignore[no-untyped-def]
    for side in (32, 97):
        for width, height in SIZES:
            compare(create_transform, noise(width, height), (side, side), fit, fraction, interpolation)


@pytest.mark.parametrize("fit", CROP_MODES)
def test_sizes_that_are_not_square(create_transform, fit) -> None:  # type: ignore[no-untyped-def]
    # timm always resizes these with its default, bilinear
    for width, height in SIZES[:7]:
        compare(create_transform, noise(width, height), (96, 160), fit, 0.875, "bilinear")


@given(
    width=st.integers(1, 400), height=st.integers(1, 400), side=st.integers(1, 200),
    fraction=st.floats(0.5, 1.0), fit=st.sampled_from(list(CROP_MODES)),
)  # fmt: skip
def test_any_size_and_fraction(create_transform, width, height, side, fraction, fit) -> None:  # type: ignore[no-untyped-def]
    compare(create_transform, noise(width, height), (side, side), fit, fraction, "bicubic")


def test_normalised_values(create_transform) -> None:  # type: ignore[no-untyped-def]
    ours = Preprocess(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    theirs = create_transform(
        (3, 224, 224), crop_pct=0.875, interpolation="bicubic", mean=ours.mean, std=ours.std, is_training=False
    )
    image = noise(320, 240)
    assert torch.equal(ours.normalize(ours(image)), theirs(image))
