"""A model that trains in a moment, and a run that is stopped in its midst."""

import os
import signal
from typing import Any

import pytest

from vitkit.train import loop

SMALL: dict[str, Any] = dict(width=16, depth=2, heads=2, head_width=8, mlp_width=32, patch_size=4, drop_path=0.1)


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, number: int = signal.SIGINT) -> None:
    """The signal arrives while a step is being computed."""
    original = loop.Run.update

    def update(self: loop.Run, batch: object) -> object:
        if self.state.clock.step == step:
            os.kill(os.getpid(), number)
        return original(self, batch)

    monkeypatch.setattr(loop.Run, "update", update)
