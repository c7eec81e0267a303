import numpy as np
import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.export.sample_photographs import sample_crops, sample_photographs, sample_pixels


def test_sample_crops_are_the_same_in_every_process() -> None:
    assert sample_photographs()
    assert all(np.array_equal(a, b) for a, b in zip(sample_crops(6), sample_crops(6), strict=True))


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_pixels_have_the_size_and_the_channels_of_the_preprocessing(channels: int) -> None:
    half = (0.5,) * channels
    pixels = sample_pixels(Preprocess(size=(8, 12), channels=channels, mean=half, std=half))
    assert pixels.shape[1:] == (8, 12, channels)
    assert pixels.dtype == np.uint8
    assert pixels.std() > 10  # photographs, not blanks
