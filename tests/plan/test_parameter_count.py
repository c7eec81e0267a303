"""Parameters and optimizer state are counted to the byte."""

from typing import Any, Literal

import pytest
import torch

from vitkit.model import ViTConfig, create_model
from vitkit.plan.checkpoint_size import state_bytes
from vitkit.plan.job import Job
from vitkit.plan.parameter_count import optimizer_bytes, parameters
from vitkit.training import recipe
from vitkit.training.autotune import TunedSettings
from vitkit.training.budget import Clock
from vitkit.training.checkpoint import TrainingState
from vitkit.training.ema import EMA
from vitkit.training.optim import make_optimizers

SMALL = ViTConfig.from_dict(
    dict(image_size=16, patch_size=8, width=24, depth=3, heads=2, head_width=12, mlp_width=48, num_classes=5)
)


@pytest.mark.parametrize(
    "changes", [{}, dict(pooling="attention"), dict(stem=(8,)), dict(mlp="swiglu", layer_scale=0.1, qk_norm=True)]
)
@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_state_of_a_run_is_counted_to_the_byte(name: Literal["adamw", "muon"], changes: dict[str, Any]) -> None:
    config = SMALL.replace(**changes)
    model = create_model(config, seed=0)
    optimizers = make_optimizers(model, recipe.Optimizer(name=name))
    model(torch.rand(2, 3, 16, 16)).square().mean().backward()
    for each in optimizers:
        each.step()
    state = TrainingState(model, optimizers, EMA(model), Clock(total=1), TunedSettings())
    job = Job(config, 2, optimizer=name)
    sizes = {key: value.nbytes for key, value in state.tensors().items()}
    assert 4 * parameters(config).total == sum(n for key, n in sizes.items() if key.startswith("model."))
    assert optimizer_bytes(job) == sum(n for key, n in sizes.items() if key.startswith("optimizer."))
    assert state_bytes(job) == sum(sizes.values())
