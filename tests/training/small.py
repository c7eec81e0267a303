"""A model that trains in a moment, and a run that is stopped in its midst."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from vitkit.errors import Interrupted
from vitkit.training import Recipe, Result, train
from vitkit.training import trainer as loop

SMALL: dict[str, Any] = dict(width=16, depth=2, heads=2, head_width=8, mlp_width=32, patch_size=4, drop_path=0.1)


def train_until(step: int, recipe: Recipe, folder: Path, number: int = signal.SIGINT) -> None:
    """The signal arrives while that step is being computed."""
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


def whole_and_resumed(
    recipe: Recipe, folder: Path, stopped_at: int = 3, number: int = signal.SIGINT
) -> tuple[Result, Result]:
    """What comes of a run that nothing disturbs, and of one that is stopped and gone on with."""
    whole = train(recipe, folder / "whole", quiet=True)
    train_until(stopped_at, recipe, folder / "parts", number)
    return whole, train(recipe, folder / "parts", resume=True, quiet=True)
