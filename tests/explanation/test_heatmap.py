"""Heat maps: colour range, colours, blending."""

import matplotlib
import numpy as np
import pytest

from vitkit.explanation.heatmap import COLORMAP, color_range, colorize, overlay, rescale


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_negative_values_have_the_colour_of_zero():
    values = np.array([[-2.0, 0.0], [1.0, 3.0]])
    assert color_range(values) == (0, 3)
    colours = colorize(values, *color_range(values))
    np.testing.assert_array_equal(colours[0, 0], colours[0, 1])
    assert color_range(np.full((2, 2), 1.0))[0] == 1


def test_lightness_grows_with_the_value():
    colours = matplotlib.colormaps[COLORMAP](np.linspace(0, 1, 64))[:, :3]
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    assert (np.diff(linear @ [0.2126, 0.7152, 0.0722]) > 0).all()


def test_rescaling_maps_the_range_to_0_and_1():
    np.testing.assert_allclose(rescale(np.array([2.0, 3.0, 4.0])), [0, 0.5, 1])
    np.testing.assert_allclose(rescale(np.array([-1.0, 0.5, 9.0]), 0, 1), [0, 0.5, 1])
    assert np.isfinite(rescale(np.ones(3))).all()


def test_an_opacity_of_0_shows_the_image_and_of_1_the_map():
    pixels, values = noise(128, 128, 3), np.random.default_rng(1).random((4, 4))
    np.testing.assert_array_equal(overlay(pixels, values, opacity=0), pixels)
    opaque = overlay(pixels, values, opacity=1, smooth=False)
    expected = colorize(values, *color_range(values)).repeat(32, axis=0).repeat(32, axis=1)
    np.testing.assert_array_equal(opaque, expected)


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_small_images_are_enlarged_without_interpolation(channels):
    pixels = noise(8, 8, channels)
    found = overlay(pixels, np.ones((2, 2)), opacity=0)
    assert found.shape == (128, 128, 3)
    np.testing.assert_array_equal(found[8::16, 8::16, 0], pixels[..., 0])


def test_the_strongest_patch_is_the_brightest():
    values = np.zeros((4, 4))
    values[1, 2] = 1
    grey = overlay(np.full((128, 128), 128, np.uint8), values).mean(axis=2)
    row, column = np.unravel_index(grey.argmax(), grey.shape)
    assert (row // 32, column // 32) == (1, 2)
