"""What is dropped depends on the seed of the image, the layer and the position, and on nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from vitkit.model import ViT
from vitkit.model.dropout import Dropout, DropPath, dropout_layers, keep_mask

from .small import random_images, small_model

RATES = dict(dropout=0.2, attention_dropout=0.3, drop_path=0.4)


def seeds(layers: int, images: int) -> Tensor:
    draw = torch.Generator().manual_seed(layers)
    return torch.randint(-(2**31), 2**31, (layers, images), generator=draw).int()


def seed(model: ViT, rows: slice, images: int) -> None:
    layers = dropout_layers(model)
    for layer, own in zip(layers, seeds(len(layers), images), strict=True):
        layer.seeds = own[rows]


@pytest.mark.parametrize("rate", [0.0001, 0.1, 0.5, 0.9])
def test_masks_drop_at_their_rate_and_independently_of_other_images_and_positions(rate: float) -> None:
    dropped = (~keep_mask(seeds(1, 64)[0], (200, 100), rate)).double()
    spread = 5 * (rate * (1 - rate)) ** 0.5  # five standard deviations of one draw
    assert dropped.mean().item() == pytest.approx(rate, abs=spread / dropped.numel() ** 0.5)
    per_image, per_position = dropped.mean(dim=(1, 2)), dropped.mean(dim=0)
    assert per_image.std().item() == pytest.approx((rate * (1 - rate) / 20_000) ** 0.5, rel=0.4)
    assert per_position.std().item() == pytest.approx((rate * (1 - rate) / 64) ** 0.5, rel=0.05)
    for a, b in ((dropped[1:], dropped[:-1]), (dropped[:, 1:], dropped[:, :-1]), (dropped[..., 1:], dropped[..., :-1])):
        assert (a * b).mean().item() == pytest.approx(rate**2, abs=spread * max(rate, 0.01) / a.numel() ** 0.5 * 2)


def test_consecutive_seeds_give_unrelated_masks() -> None:
    dropped = (~keep_mask(torch.arange(32, dtype=torch.int32), (10_000,), 0.5)).double()
    correlation = torch.corrcoef(dropped)
    assert (correlation - torch.eye(32)).abs().max() < 0.05


@pytest.mark.parametrize("kind", [Dropout, DropPath])
def test_seeded_layers_keep_the_mean_and_scale_what_they_keep(kind: type[Dropout]) -> None:
    layer, x = kind(0.25).train(), torch.ones(4000, 3, 5)
    layer.seeds = seeds(1, 4000)[0]
    found = layer(x)
    assert_close(found.unique(), torch.tensor([0, 1 / 0.75]))
    assert found.mean().item() == pytest.approx(1, abs=0.05)
    if kind is DropPath:
        assert_close(found, found[:, :1, :1].expand_as(found))
    assert layer.eval()(x) is x


def test_every_layer_of_a_model_is_listed_and_two_of_a_block_drop_differently() -> None:
    model = small_model(depth=2, **RATES)
    # after the embedding; per block: weights, projection, two in the MLP; the branches of the second block
    assert len(dropout_layers(model)) == 1 + 2 * 4 + 2
    assert dropout_layers(small_model(depth=2)) == []


@pytest.mark.parametrize("parts", [[4, 4], [1, 7], [2, 3, 3]])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("mlp", ["gelu", "swiglu"])
def test_an_image_loses_the_same_in_any_micro_batch(parts: list[int], checkpointing: bool, mlp: str) -> None:
    model = small_model(depth=2, mlp=mlp, pooling="attention", **RATES).train()
    images = random_images(model, batch=8)

    def run(rows: slice) -> Tensor:
        seed(model, rows, 8)
        logits = model(images[rows])
        logits.square().sum().backward()
        return logits.detach()

    complete = run(slice(0, 8))
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model.set_grad_checkpointing(checkpointing)
    ends = [sum(parts[: n + 1]) for n in range(len(parts))]
    found = torch.cat([run(slice(end - count, end)) for end, count in zip(ends, parts, strict=True)])
    assert_close(found, complete, rtol=1e-5, atol=1e-6)
    assert_close([p.grad for p in model.parameters()], expected, rtol=1e-4, atol=1e-5)
    model.zero_grad()
    seed(model, slice(1, 8), 8)  # other seeds: another result
    assert (model(images[:7]) - complete[:7]).abs().max() > 1e-3


COMPILED = """
import torch
from model.small import random_images, small_model
from model.test_dropout import RATES, dropout_layers, seed

model = small_model(depth=2, **RATES).train()
images, compiled, counts = random_images(model, batch=6), torch.compile(model, backend="BACKEND", dynamic=False), []
for rows in (slice(0, 3), slice(3, 6), slice(1, 4)):
    seed(model, rows, 6)
    expected, found = model(images[rows]), compiled(images[rows])
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max(), rows
    counts.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
assert counts == [1, 1, 1], counts
"""


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_model_drops_the_same_without_compiling_again(backend: str) -> None:
    command = [sys.executable, "-c", COMPILED.replace("BACKEND", backend)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr[-4000:]
