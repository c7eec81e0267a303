"""Objectives given in Python: metrics, resuming, batches that may not be divided."""

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vitkit
from tests.training.small import SMALL
from vitkit.data.training_batch import TrainingBatch
from vitkit.errors import ConfigError, Interrupted, WorkError
from vitkit.training import Recipe, Result, get_recipe
from vitkit.training.objective import Supervised, as_tensors, check_metrics, cores_may_share, objective_state
from vitkit.training.train import train

CHANGES = ["budget.epochs=0.2", "budget.validate_every=0.1", "augment.mixup=0.2", "optimizer.name=adamw"]


class Contrast(nn.Module):
    """Cross-entropy, a loss of a trained projection, a running mean in a buffer, and a random number."""

    whole_batch = True

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.projection = nn.Parameter(torch.randn(16, 8, generator=generator) / 4)
        self.register_buffer("center", torch.zeros(8))

    def forward(self, model: vitkit.ViT, batch: TrainingBatch) -> tuple[Tensor, dict[str, Any]]:
        tokens = model.forward_features(batch.images)
        z = F.normalize(model.forward_head(tokens, pre_logits=True) @ self.projection - self.center, dim=1)
        if self.training:
            self.center.lerp_(z.detach().mean(0), 0.1)
        noise = torch.rand(())
        loss = F.cross_entropy(model.forward_head(tokens), batch.targets) + 0.1 * noise * (z @ z.T).mean()
        return loss, {"spread": z.std(), "noise": float(noise)}


def recipe(*changes: str, **config: Any) -> Recipe:
    return get_recipe("digits").replace(config={**SMALL, **config}).override([*CHANGES, *changes])


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def interrupted_at(step: int) -> Any:
    def on_step(now: int, metrics: Any, model: Any) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_step


def test_an_objective_with_state_resumes_to_the_same_bits(tmp_path: Path) -> None:
    seen: list[tuple[int, dict[str, float]]] = []
    whole = Contrast()
    first = train(recipe(), tmp_path / "a", quiet=True, objective=whole, on_step=lambda s, m, _: seen.append((s, m)))
    with pytest.raises(Interrupted):
        train(recipe(), tmp_path / "b", quiet=True, objective=Contrast(), on_step=interrupted_at(4))
    resumed = Contrast()
    second = train(recipe(), tmp_path / "b", resume=True, quiet=True, objective=resumed)
    assert second.weights_sha256 == first.weights_sha256
    assert torch.equal(resumed.projection, whole.projection)
    assert torch.equal(resumed.center, whole.center)
    assert not torch.equal(whole.projection, Contrast().projection)
    assert whole.center.abs().sum() > 0
    # metrics reach on_step, the log and the result
    assert [step for step, _ in seen] == list(range(1, first.steps + 1))
    assert seen[0][1].keys() == {"loss", "spread", "noise", "gradient_norm"}
    assert any("spread" in line for line in lines(tmp_path / "a"))
    assert any("val_spread" in line and "val_objective_loss" in line for line in lines(tmp_path / "a"))
    assert first.metrics.keys() == {"objective_loss", "spread", "noise"}
    with pytest.raises(ConfigError, match=r"needs the objective Contrast: call vitkit\.train"):
        train(vitkit.Recipe.from_dict(json.loads((tmp_path / "a" / "recipe.json").read_text())), tmp_path / "c")


def test_a_metric_of_the_objective_decides_what_is_best_and_when_to_stop(tmp_path: Path) -> None:
    values = itertools.count(5.0, -1.0)

    def objective(model: nn.Module, batch: TrainingBatch) -> tuple[Tensor, dict[str, Any]]:
        value = 0.0 if model.training else next(values)
        return F.cross_entropy(model(batch.images), batch.labels), {"value": value}

    changes = ["budget.monitor=value", "budget.early_stop=2", "budget.epochs=2", "batch=500", "budget.goal=max"]
    result = train(recipe(*changes), tmp_path / "run", quiet=True, objective=objective)
    assert result.metrics["value"] == 5.0
    assert result.steps == 3
    with pytest.raises(ConfigError, match=r"budget\.monitor='valu': a validation has top1, .*value"):
        train(recipe("budget.monitor=valu"), tmp_path / "other", quiet=True, objective=objective)


def test_a_whole_batch_is_never_divided(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Whole(Supervised):
        whole_batch = True

        def __call__(self, model: nn.Module, batch: TrainingBatch) -> Any:
            sizes.append(len(batch))
            if len(sizes) > 3:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().__call__(model, batch)

    with pytest.raises(ConfigError, match=r"Whole needs the whole batch, but machine\.micro_batch=8 divides it"):
        train(recipe("machine.micro_batch=8"), tmp_path / "a", quiet=True, objective=Whole())
    with pytest.raises(WorkError, match="needs the whole batch; use a smaller batch"):
        train(recipe("machine.threads=2", drop_path=0.0), tmp_path / "b", quiet=True, objective=Whole())
    assert sizes == [32] * 4


def test_only_objectives_that_allow_it_are_shared_by_cores() -> None:
    assert cores_may_share(Supervised())
    assert not cores_may_share(lambda model, batch: (batch.images.mean(), {}))
    assert not cores_may_share(Contrast())


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"lr": 1.0}, "a metric 'lr', a name that the log uses itself"),
        ({"each": torch.ones(4)}, r"metric 'each' has shape \(4,\): return its mean"),
        ([1.0], "returned list as metrics: expected a dictionary"),
    ],
)
def test_metrics_that_cannot_be_logged_are_errors(metrics: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_metrics(metrics)


def test_metrics_are_detached_scalars_and_a_state_must_be_tensors() -> None:
    found = as_tensors({"a": torch.ones(1, requires_grad=True), "b": 2}, torch.device("cpu"))
    assert found["a"].shape == ()
    assert not found["a"].requires_grad
    assert found["b"].dtype == torch.float32

    class Counting(Supervised):
        def state_dict(self) -> dict[str, Any]:
            return {"count": 3}

    with pytest.raises(ConfigError, match="count is a int, checkpoints hold tensors"):
        objective_state(Counting())


def test_model_and_data_are_given_in_python(tmp_path: Path) -> None:
    digits = vitkit.open_data("digits")
    model = vitkit.create_model("vit_digits_patch2_8", seed=1, **{**SMALL, "patch_size": 4})
    plain = recipe().replace(config={})
    result: Result = train(plain, tmp_path / "a", quiet=True, model=model, data=digits)
    images = vitkit.open_data("digits").splits["train"]
    assert result.val["n"] == len(digits.splits["val"])
    loaded = vitkit.load_model(tmp_path / "a")
    assert all(torch.equal(p, q) for p, q in zip(loaded.parameters(), model.parameters(), strict=True))
    pixels = torch.stack([torch.from_numpy(images.images[i]) for i in range(200)])
    arrays = (pixels, torch.from_numpy(images.labels[:200]) % 3)
    named = train(plain, tmp_path / "b", quiet=True, model="vit_digits_patch2_8", data=arrays)
    assert named.test is None
    with pytest.raises(ConfigError, match=r"has 10 classes; the data have 1 channels.* and 3 classes"):
        train(plain, tmp_path / "c", quiet=True, model=model, data=arrays)
    with pytest.raises(ConfigError, match="model is a Linear: train needs a ViT"):
        train(plain, tmp_path / "c", quiet=True, model=nn.Linear(2, 2), data=arrays)  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


def test_an_objective_that_returns_only_a_loss_is_refused(tmp_path: Path) -> None:
    recipe = get_recipe("digits").override(CHANGES)
    with pytest.raises(ConfigError, match=r"the objective returned Tensor: expected a pair \(loss, metrics\)"):
        train(recipe, tmp_path / "run", objective=lambda model, batch: model(batch.images).mean(), quiet=True)
