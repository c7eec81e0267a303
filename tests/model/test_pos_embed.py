import itertools
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch.testing import assert_close

from vitkit.model.pos_embed import apply_rope, axial_rope, resample_table, sincos_table

from .small import random_images, small_model

GRIDS = {
    "larger": ((4, 4), (7, 7)),
    "smaller": ((7, 7), (4, 4)),
    "to non-square": ((4, 4), (3, 9)),
    "from non-square": ((3, 5), (4, 4)),
    "same count, other shape": ((2, 6), (4, 3)),
    "turned": ((2, 6), (6, 2)),
    "to one": ((3, 4), (1, 1)),
}


def random_table(grid, width=6):
    return torch.randn(grid[0] * grid[1], width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("old", "new"), GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_resampling_equals_pillow_channel_by_channel(old, new, mode):
    table = random_table(old)
    pictures = table.T.reshape(-1, *old).numpy()
    kernel = Image.Resampling[mode.upper()]
    resized = np.stack([np.asarray(Image.fromarray(p).resize((new[1], new[0]), kernel)) for p in pictures])
    expected = torch.from_numpy(resized).flatten(1).T
    assert_close(resample_table(table, old, new, mode), expected, rtol=1e-5, atol=1e-5)


def test_the_same_grid_keeps_the_table_to_the_bit():
    table = random_table((3, 5))
    assert resample_table(table, (3, 5), (3, 5), "bicubic") is table


@pytest.mark.parametrize(("old", "new"), GRIDS.values(), ids=GRIDS)
def test_resampling_a_mirrored_table_mirrors_the_result(old, new):
    table = random_table(old)
    mirrored = table.reshape(*old, -1).flip(0, 1).flatten(0, 1)
    expected = resample_table(table, old, new, "bicubic").reshape(*new, -1).flip(0, 1).flatten(0, 1)
    assert_close(resample_table(mirrored, old, new, "bicubic"), expected, rtol=1e-5, atol=1e-5)


def test_resampling_in_bfloat16_rounds_once_at_the_end():
    table = random_table((4, 4)).bfloat16()
    resampled = resample_table(table, (4, 4), (6, 5), "bicubic")
    assert resampled.dtype == torch.bfloat16
    exact = resample_table(table.float(), (4, 4), (6, 5), "bicubic")
    assert_close(resampled, exact.bfloat16(), rtol=0, atol=0)


def test_gradients_flow_through_resampling_to_every_row():
    table = random_table((4, 4)).requires_grad_()
    resample_table(table, (4, 4), (3, 5), "bicubic").square().sum().backward()
    assert (table.grad.abs().amax(dim=1) > 0).all()


@pytest.mark.parametrize("grid", [(3, 3), (2, 5)])
def test_sincos_equals_its_formula_entry_by_entry(grid):
    width = 16
    table = sincos_table(grid, width)
    assert table.shape == (grid[0] * grid[1], width)
    quarter = width // 4
    for row, column in itertools.product(range(grid[0]), range(grid[1])):
        for i in range(quarter):
            omega = 1 / 10_000 ** (i / (quarter - 1))
            expected = [
                math.sin(column * omega),
                math.cos(column * omega),
                math.sin(row * omega),
                math.cos(row * omega),
            ]
            assert_close(table[row * grid[1] + column, i::quarter], torch.tensor(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grid", [(3, 3), (2, 5)])
def test_rope_angles_equal_their_formula_entry_by_entry(grid):
    width = 16
    cos, sin = axial_rope(grid, width)
    assert cos.shape == sin.shape == (grid[0] * grid[1], width)
    for row, column in itertools.product(range(grid[0]), range(grid[1])):
        y, x = 2 * (row + 0.5) / grid[0] - 1, 2 * (column + 0.5) / grid[1] - 1
        for i in range(width):
            place, j = divmod(i % (width // 2), width // 4)
            angle = 2 * math.pi * (y, x)[place] / 100 ** (4 * j / width)
            token = row * grid[1] + column
            assert cos[token, i].item() == pytest.approx(math.cos(angle), abs=1e-5)
            assert sin[token, i].item() == pytest.approx(math.sin(angle), abs=1e-5)


def test_rotated_products_depend_only_on_relative_positions():
    grid, width = (4, 5), 8
    q, k = torch.randn(2, 1, 1, 1, width, generator=torch.Generator().manual_seed(0)).expand(-1, -1, -1, 20, -1)
    rope = axial_rope(grid, width)
    scores = (apply_rope(q, rope) @ apply_rope(k, rope).mT)[0, 0]
    places = list(itertools.product(range(grid[0]), range(grid[1])))
    by_difference: dict[tuple[int, int], list[float]] = {}
    for (i, a), (j, b) in itertools.product(enumerate(places), enumerate(places)):
        by_difference.setdefault((a[0] - b[0], a[1] - b[1]), []).append(scores[i, j].item())
    for values in by_difference.values():
        assert max(values) - min(values) < 1e-4
    means = [sum(v) / len(v) for v in by_difference.values()]
    assert max(means) - min(means) > 0.5  # and they do depend on it


def test_rope_rotates_pairs_as_complex_numbers():
    x = torch.randn(2, 3, 6, 8, generator=torch.Generator().manual_seed(0))
    cos, sin = axial_rope((2, 3), 8)
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.complex(cos, sin)[:, :4]
    assert_close(apply_rope(x, (cos, sin)), torch.cat([turned.real, turned.imag], dim=-1))


def test_rope_keeps_lengths_and_does_not_rotate_the_centre():
    x = torch.randn(2, 3, 9, 8, generator=torch.Generator().manual_seed(0))
    turned = apply_rope(x, axial_rope((3, 3), 8))
    assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert_close(turned[:, :, 4], x[:, :, 4])
    assert (turned[:, :, 0] - x[:, :, 0]).abs().max() > 0.1


@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_rope_leaves_prefix_tokens_unchanged(prefix):
    x = torch.randn(2, 3, prefix + 6, 8, generator=torch.Generator().manual_seed(0))
    rope = axial_rope((2, 3), 8)
    turned = apply_rope(x, rope)
    assert_close(turned[:, :, :prefix], x[:, :, :prefix], rtol=0, atol=0)
    assert_close(turned[:, :, prefix:], apply_rope(x[:, :, prefix:], rope), rtol=0, atol=0)
    assert (turned[:, :, prefix:] != x[:, :, prefix:]).any(dim=-1).all()


@pytest.mark.parametrize("position", ["learned", "sincos", "rotary"])
def test_only_models_with_positions_depend_on_the_order_of_patches(position):
    model, without = small_model(position=position), small_model(position="none")
    images = random_images(model)
    swapped = torch.cat([images[..., 8:16], images[..., :8], images[..., 16:]], dim=-1)
    assert (model(images) - model(swapped)).abs().max() > 1e-3
    assert_close(without(images), without(swapped), rtol=1e-4, atol=1e-5)
