"""Short runs of a small model, complete or interrupted."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from vitkit.errors import Interrupted
from vitkit.training import Recipe, Result, get_recipe
from vitkit.training import trainer as loop
from vitkit.training.checkpoint import find_latest
from vitkit.training.train import train

SHORT = ["budget.epochs=0.2", "budget.minutes=0", "budget.validate_every=0.1", "batch=32"]
SMALL: dict[str, Any] = dict(width=16, depth=2, heads=2, head_width=8, mlp_width=32, patch_size=4, drop_path=0.1)


def train_until(step: int, recipe: Recipe, folder: Path, number: int = signal.SIGINT) -> None:
    """Train until a signal arrives during this step."""
    original = loop.Trainer.update

    def update(self: loop.Trainer, batch: object) -> object:
        if self.state.clock.step == step:
            os.kill(os.getpid(), number)
        return original(self, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "update", update)
        with pytest.raises(Interrupted, match="--resume") as caught:
            train(recipe, folder, quiet=True)
    assert caught.value.exit_code == 128 + number


def uninterrupted_and_resumed(
    recipe: Recipe, folder: Path, stopped_at: int = 3, number: int = signal.SIGINT
) -> tuple[Result, Result]:
    """Return the results of an uninterrupted run, and of one that was interrupted and resumed."""
    uninterrupted = train(recipe, folder / "uninterrupted", quiet=True)
    train_until(stopped_at, recipe, folder / "interrupted", number)
    return uninterrupted, train(recipe, folder / "interrupted", resume=True, quiet=True)


def recipe(*changes: str, epochs: float = 0.2) -> Recipe:
    short = get_recipe("digits").replace(config={**SMALL, "dropout": 0.1})
    return short.override(["augment.mixup=0.2", f"budget.epochs={epochs}", "budget.validate_every=0.1", *changes])


def run(folder: Path, *changes: str, resume: bool = False, **named: float) -> Result:
    return train(recipe(*changes, **named), folder, resume=resume, quiet=True)


def finetune(weights: Path, *changes: str) -> Recipe:
    recipe = get_recipe("finetune").replace(data="digits", init=str(weights))
    return recipe.override([*SHORT, "augment.flip=false", "augment.policy=none", *changes])


def load_latest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors and numbers of the newest intact checkpoint."""
    saved = find_latest(folder)
    return (saved.tensors(), saved.numbers) if saved else None
