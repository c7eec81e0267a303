"""Pictures by their structure: what is where, on which scale, in which colours."""

import dataclasses
import io

import matplotlib
import numpy as np
import pytest

from tests.explanation.test_explain import named, noise
from vitkit.explanation import explain
from vitkit.explanation import plots as draw
from vitkit.explanation import plots_model as draw_model
from vitkit.explanation.faithfulness import Curves, Faithfulness
from vitkit.explanation.model_stats import Similarity


def maps_of(figure):
    """The map images of a sheet: every second photograph's axes, its last image."""
    return [axes.images[-1] for axes in figure.axes if len(axes.images) == 2]


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
def test_each_map_lies_over_the_region_that_the_model_saw(fit):
    found = explain(named(fit), [noise(40, 90), noise(90, 50)], "attribution")
    figure = draw.sheet(found)
    shown = maps_of(figure)
    assert len(shown) == 2
    for i, image in enumerate(shown):
        left, right, bottom, top = image.get_extent()
        np.testing.assert_allclose((left, top, right, bottom), found.regions[i])
        np.testing.assert_allclose(image.get_array(), found.maps[i] / found.maps[i].mean(), rtol=1e-6)
        height, width = found.images.sizes[i]
        assert image.axes.images[0].get_extent() == [0, width, height, 0]
        x, y = image.axes.get_xlim(), image.axes.get_ylim()  # all of both is to be seen
        assert x[0] <= min(0, left) and x[1] >= max(width, right)  # noqa: PT018  # one statement about one axis
        assert y[1] <= min(0, top) and y[0] >= max(height, bottom)  # noqa: PT018


def test_what_was_cropped_away_is_dimmed_and_nothing_else():
    found = explain(named("crop"), noise(40, 90), "attention")
    axes = maps_of(draw.sheet(found))[0].axes
    veils = [p for p in axes.patches if p.get_fill()]
    left, top, right, bottom = found.regions[0]
    assert sum(p.get_width() * p.get_height() for p in veils) == pytest.approx(
        40 * 90 - (right - left) * (bottom - top)
    )
    for p in veils:
        x, y = p.get_x() + p.get_width() / 2, p.get_y() + p.get_height() / 2
        assert not (left < x < right and top < y < bottom)


def test_a_map_is_drawn_smoothly_or_as_patches_beside_the_original_with_a_legend():
    found = explain(named(), noise(40, 90), "attention")
    for smooth, way in ((True, "bicubic"), (False, "nearest")):
        figure = draw.sheet(found, smooth=smooth)
        (image,) = maps_of(figure)
        assert image.get_interpolation() == way
        assert image.colorbar.ax.get_ylabel() == "attention, × its mean"
        original = next(axes for axes in figure.axes if len(axes.images) == 1)
        assert np.array_equal(original.images[0].get_array(), found.images.previews[0])
        assert "attention: " in image.axes.get_title(loc="left")


def test_what_speaks_against_a_class_is_as_dark_as_what_does_not_matter():
    values = np.array([[-2.0, 0.0], [1.0, 3.0]])
    scale = draw.scale(draw.times_mean(values))
    assert (scale.vmin, scale.vmax) == (0, 3)
    assert draw.scale(np.full((2, 2), 1.0)).vmin == 1


def test_each_colour_bar_says_what_its_own_map_is_drawn_in():
    found = explain(named(), [noise(40, 90), noise(40, 90)], "occlusion")
    maps = np.abs(found.maps) + 0.1
    maps[1, 0, 0] = -1
    figure = draw.sheet(dataclasses.replace(found, maps=maps))
    units = [image.colorbar.ax.get_ylabel() for image in maps_of(figure)]
    assert units == ["fall of log-probability, × its mean", "fall of log-probability"]


def test_the_colours_grow_in_lightness_alone():
    colours = matplotlib.colormaps[draw.COLOURS](np.linspace(0, 1, 64))[:, :3]
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    assert (np.diff(linear @ [0.2126, 0.7152, 0.0722]) > 0).all()


@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_sheets_are_written_as_png_svg_and_pdf(kind, begins):
    file = io.BytesIO()
    draw.sheet(explain(named(), [noise(40, 50)] * 4, "random")).savefig(file, format=kind)
    assert file.getvalue().startswith(begins)


def test_one_channel_and_names_with_dollar_signs_are_drawn():
    model = named(in_channels=1)
    model.info = model.info.replace(
        preprocess=model.info.preprocess.replace(channels=1, mean=(0.5,), std=(0.5,)), class_names=list("$bc$e")
    )
    draw.sheet(explain(model, noise(40, 50), "attention")).savefig(io.BytesIO())


def test_a_grid_shows_every_layer_and_head_on_one_scale():
    maps = np.random.default_rng(0).random((3, 2, 4, 5))
    figure = draw.head_grid(maps, "cat.jpg")
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(images) == 6
    np.testing.assert_allclose(images[3].get_array(), maps[1, 1] * 20)
    assert len({id(image.norm) for image in images}) == 1


def test_curves_of_each_method_are_told_apart_by_colour_and_area():
    rng = np.random.default_rng(0)
    found = [
        Faithfulness(name, Curves(np.linspace(0, 1, 5), rng.random((3, 5)), rng.random((3, 5))), np.zeros(3))
        for name in ("attention", "rollout", "gradient", "attribution", "occlusion", "random")
    ]
    left, right = draw.curves(found).axes
    assert len({(line.get_color(), line.get_linestyle()) for line in left.lines}) == 6
    assert left.lines[0].get_label() == f"attention {found[0].curves.deletion_area.mean():.3f}"
    np.testing.assert_allclose(right.lines[2].get_ydata(), found[2].curves.insertion.mean(axis=0))


def test_the_models_pictures_hold_the_numbers_they_were_given():
    rng = np.random.default_rng(0)
    figure = draw_model.filters(rng.random((9, 4, 4, 3)), np.full(9, 0.1))
    assert sum(len(axes.images) for axes in figure.axes) == 9
    alike = Similarity(rng.random((14, 9, 14, 9)), "cosine similarity")
    figure = draw_model.similarity(alike)
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(images) == 49
    np.testing.assert_array_equal(images[-1].get_array(), alike.values[13, 8])
    values = rng.random((4, 3)) * 50
    axes = draw_model.distances(values, 100, 2).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), values.ravel())
    np.testing.assert_allclose(axes.lines[1].get_ydata(), values.mean(axis=1))


def test_tokens_stand_beside_what_the_model_saw():
    found = explain(named(), [noise(40, 90), noise(60, 50)], "attention")
    rng = np.random.default_rng(0)
    figure = draw_model.tokens(found.images, rng.random((2, 4, 3, 3)), rng.random((2, 4, 3)))
    seen = figure.axes[0]
    left, top, right, bottom = found.regions[0]
    assert (*seen.get_xlim(), *seen.get_ylim()) == pytest.approx((left, right, bottom, top))
