import numpy as np
import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.data.recommended_settings import FOR_DIGITS, FOR_PHOTOGRAPHS, FOR_SMALL_IMAGES, recommend
from vitkit.model.variants import VARIANTS


def test_every_suggested_model_exists() -> None:
    for name in (FOR_DIGITS, *(n for _, n in FOR_PHOTOGRAPHS + FOR_SMALL_IMAGES)):
        assert name in VARIANTS


@pytest.mark.parametrize(
    ("images", "side", "aspect", "expected"),
    [
        (2_640, 256, 1.0, ("vit_tiny_patch16_224", 224, "crop", 0.875)),
        (150_000, 400, 1.5, ("vit_small_patch16_224", 224, "crop", 0.875)),
        (1_280_000, 375, 1.8, ("vit_base_patch16_224", 224, "crop", 0.875)),
        (50_000, 32, 1.0, ("vit_mini_stem4_32", 32, "crop", 1.0)),
        (5_000, 28, 1.0, ("vit_pico_stem4_32", 28, "crop", 1.0)),
        (5_000, 128, 3.0, ("vit_tiny_patch16_224", 128, "pad", 1.0)),
        (5_000, 70, 1.0, ("vit_tiny_patch16_224", 96, "crop", 0.875)),
    ],
)
def test_recommendations(images: int, side: float, aspect: float, expected: tuple[object, ...]) -> None:
    found = recommend(np.full(10, images // 10), side, aspect, grey=False)
    assert (found.model, found.size, found.fit, found.crop_fraction) == expected
    config = VARIANTS[found.model].config.replace(image_size=found.size)  # an error if it is no multiple of the patch
    Preprocess(size=config.image_size, fit=found.fit, crop_fraction=found.crop_fraction)  # type: ignore[arg-type]


def test_class_weights_give_every_class_the_same_total_weight() -> None:
    counts = np.array([100, 10, 0, 40])
    weights = np.array(recommend(counts, 256, 1.0, grey=False).class_weights)
    assert (weights * counts) == pytest.approx([50, 50, 0, 50])
    assert weights[2] == 0
    assert recommend(np.array([100, 50]), 256, 1.0, grey=False).class_weights is None


def reasons(counts: list[int], aspect: float = 1.0) -> str:
    return "\n".join(recommend(np.array(counts), 256, aspect, grey=False).reasons)


def test_a_single_class_is_pointed_out() -> None:
    assert ["only one class has images" in reasons(counts) for counts in ([40], [40, 0], [40, 40])] == [
        True,
        True,
        False,
    ]


def test_the_reason_for_crop_or_pad_is_the_aspect_ratio() -> None:
    square = "crop to a square: 95 % of the images have an aspect ratio (long side / short side) of at most 1.00"
    assert square in reasons([40, 40]).splitlines()
    assert "pad to a square: 95 % of the images have an aspect ratio" in reasons([40, 40], aspect=3.0)
    assert "a crop would lose half of the longest: --set preprocess.fit=pad" in reasons([40, 40], aspect=3.0)
