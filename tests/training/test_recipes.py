"""Named recipes: each can be built and saved; those that take too long to train here run their first steps."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from vitkit.model import create_model
from vitkit.training import Recipe, get_recipe
from vitkit.training.recipes import RECIPES
from vitkit.training.train import train


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_states_its_expected_result_and_round_trips(name: str) -> None:
    recipe = get_recipe(name)
    assert len(recipe.expected_result) > 20
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    if recipe.model:
        create_model(recipe.model, device="meta", **recipe.config)


def test_the_classic_model_has_the_size_of_the_tutorials() -> None:
    recipe = get_recipe("cifar10_classic")
    model = create_model(recipe.model, device="meta", **recipe.config)
    c = model.config
    assert (c.patch_size, c.width, c.depth, c.heads, c.mlp_width) == ((4, 4), 48, 4, 4, 192)
    assert sum(p.numel() for p in model.parameters()) < 125_000


def test_the_fast_model_stays_under_its_limit() -> None:
    recipe = get_recipe("cifar10_fast")
    model = create_model(recipe.model, device="meta", **recipe.config)
    assert sum(p.numel() for p in model.parameters()) <= 300_000


def test_the_imagenet_recipe_trains(tmp_path: Path) -> None:
    """The recipe with a smaller batch and one epoch, on noise."""
    noise = np.random.default_rng(0).integers(0, 256, (12, 96, 80, 3), dtype=np.uint8)
    labels = np.arange(12) % 3
    np.savez(
        tmp_path / "noise.npz",
        train_images=noise[:6],
        train_labels=labels[:6],
        val_images=noise[6:],
        val_labels=labels[6:],
    )
    recipe = get_recipe("imagenet_s16").override([f"data={tmp_path / 'noise.npz'}", "budget.epochs=1", "batch=3"])
    recipe = dataclasses.replace(recipe, machine=dataclasses.replace(recipe.machine, precision="fp32", compile="off"))
    result = train(recipe, tmp_path / "run", quiet=True)
    assert result.steps == 2
    assert result.parameters == pytest.approx(21.6e6, rel=0.02)  # three classes instead of a thousand
