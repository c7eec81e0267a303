"""Figures of explanations and of the model: positions, scales, colours, labels."""

import dataclasses
import io

import numpy as np
import pytest

from tests.explanation.test_result import named, noise
from vitkit.explanation import explain, plots
from vitkit.explanation.faithfulness import Curves, Faithfulness
from vitkit.explanation.heatmap import color_range, overlay
from vitkit.explanation.model_stats import PositionSimilarity


def maps_of(figure):
    """Return (the axes image of the overlay, its colour bar) of each map."""
    found = [axes for axes in figure.axes if len(axes.images) == 2]
    return [(axes.images[-1], axes.child_axes[0]._colorbar) for axes in found]


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
def test_each_map_lies_over_the_crop_that_the_model_received(fit):
    found = explain(named(fit), [noise(40, 90), noise(90, 50)], "attribution")
    figure = plots.plot_maps(found)
    shown = maps_of(figure)
    assert len(shown) == 2
    for i, (image, bar) in enumerate(shown):
        left, right, bottom, top = image.get_extent()
        np.testing.assert_allclose((left, top, right, bottom), found.regions[i])
        np.testing.assert_allclose(bar.mappable.get_array(), found.maps[i] / found.maps[i].mean(), rtol=1e-6)
        height, width = found.images.sizes[i]
        assert image.axes.images[0].get_extent() == [0, width, height, 0]
        x, y = image.axes.get_xlim(), image.axes.get_ylim()  # all of both is to be seen
        assert x[0] <= min(0, left) and x[1] >= max(width, right)  # noqa: PT018  # one statement about one axis
        assert y[1] <= min(0, top) and y[0] >= max(height, bottom)  # noqa: PT018


def test_only_pixels_outside_the_crop_are_faded():
    found = explain(named("crop"), noise(40, 90), "attention")
    axes = maps_of(plots.plot_maps(found))[0][0].axes
    veils = [p for p in axes.patches if p.get_fill()]
    left, top, right, bottom = found.regions[0]
    assert sum(p.get_width() * p.get_height() for p in veils) == pytest.approx(
        40 * 90 - (right - left) * (bottom - top)
    )
    for p in veils:
        x, y = p.get_x() + p.get_width() / 2, p.get_y() + p.get_height() / 2
        assert not (left < x < right and top < y < bottom)


@pytest.mark.parametrize("smooth", [True, False])
def test_a_map_is_drawn_next_to_the_original_with_a_colour_bar(smooth):
    found = explain(named("squash"), noise(40, 90), "attention")
    figure = plots.plot_maps(found, smooth=smooth)
    ((image, bar),) = maps_of(figure)
    np.testing.assert_array_equal(
        image.get_array(), overlay(plots._crop(found.images, 0), found.maps[0], smooth=smooth)
    )
    assert bar.ax.get_ylabel() == "attention, × its mean"
    assert (bar.mappable.norm.vmin, bar.mappable.norm.vmax) == color_range(found.maps[0] / found.maps[0].mean())
    original = next(axes for axes in figure.axes if len(axes.images) == 1)
    np.testing.assert_array_equal(original.images[0].get_array(), found.images.previews[0])
    assert "attention: " in image.axes.get_title(loc="left")


def test_padding_is_drawn_white_under_the_map():
    found = explain(named("pad"), np.zeros((40, 90, 3), dtype=np.uint8), "attention")
    left, top, right, bottom = (round(edge) for edge in found.regions[0])
    crop = plots._crop(found.images, 0)
    assert crop.shape == (bottom - top, right - left, 3)
    assert (crop[: -top - 1] == 255).all()
    assert (crop[-top + 1 : 39 - top, 1 - left : 89 - left] == 0).all()


def test_each_colour_bar_names_the_unit_of_its_map():
    found = explain(named(), [noise(40, 90), noise(40, 90)], "occlusion")
    maps = np.abs(found.maps) + 0.1
    maps[1, 0, 0] = -1
    figure = plots.plot_maps(dataclasses.replace(found, maps=maps))
    units = [bar.ax.get_ylabel() for _, bar in maps_of(figure)]
    assert units == ["drop of log-probability, × its mean", "drop of log-probability"]


@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures_are_written_as_png_svg_and_pdf(kind, begins):
    file = io.BytesIO()
    plots.plot_maps(explain(named(), [noise(40, 50)] * 4, "random")).savefig(file, format=kind)
    assert file.getvalue().startswith(begins)


def test_one_channel_and_names_with_dollar_signs_are_drawn():
    model = named(in_channels=1)
    model.info = model.info.replace(
        preprocess=model.info.preprocess.replace(channels=1, mean=(0.5,), std=(0.5,)), class_names=list("$bc$e")
    )
    plots.plot_maps(explain(model, noise(40, 50), "attention")).savefig(io.BytesIO())


def test_a_grid_shows_every_layer_and_head_on_one_scale():
    maps = np.random.default_rng(0).random((3, 2, 4, 5))
    figure = plots.plot_heads(maps, "cat.jpg")
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(images) == 6
    np.testing.assert_allclose(images[3].get_array(), maps[1, 1] * 20)
    assert len({id(image.norm) for image in images}) == 1


def test_each_method_has_its_own_line_style_and_area():
    rng = np.random.default_rng(0)
    found = [
        Faithfulness(name, Curves(np.linspace(0, 1, 5), rng.random((3, 5)), rng.random((3, 5))), np.zeros(3))
        for name in ("attention", "rollout", "gradient", "attribution", "occlusion", "random")
    ]
    left, right = plots.plot_faithfulness(found).axes
    assert len({(line.get_color(), line.get_linestyle()) for line in left.lines}) == 6
    assert left.lines[0].get_label() == f"attention {found[0].curves.deletion_area.mean():.3f}"
    np.testing.assert_allclose(right.lines[2].get_ydata(), found[2].curves.insertion.mean(axis=0))


def test_figures_of_the_model_show_the_given_numbers():
    rng = np.random.default_rng(0)
    figure = plots.plot_filters(rng.random((9, 4, 4, 3)), np.full(9, 0.1))
    assert sum(len(axes.images) for axes in figure.axes) == 9
    similarity = PositionSimilarity(rng.random((14, 9, 14, 9)), "Cosine similarity")
    figure = plots.plot_position_similarity(similarity)
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(images) == 49
    np.testing.assert_array_equal(images[-1].get_array(), similarity.values[13, 8])
    values = rng.random((4, 3)) * 50
    axes = plots.plot_attention_distance(values, 100, 2).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), values.ravel())
    np.testing.assert_allclose(axes.lines[1].get_ydata(), values.mean(axis=1))


def test_tokens_are_drawn_next_to_the_crop_that_the_model_received():
    found = explain(named(), [noise(40, 90), noise(60, 50)], "attention")
    rng = np.random.default_rng(0)
    figure = plots.plot_tokens(found.images, rng.random((2, 4, 3, 3)), rng.random((2, 4, 3)))
    seen = figure.axes[0]
    left, top, right, bottom = found.regions[0]
    assert (*seen.get_xlim(), *seen.get_ylim()) == pytest.approx((left, right, bottom, top))
