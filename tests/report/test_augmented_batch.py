"""The first batch of the report equals the batch of training step 0, value by value."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vitkit.data.training_batch import TrainingBatch
from vitkit.report.augmented_batch import FirstBatch, first_batch
from vitkit.report.run_assets import open_assets
from vitkit.report.run_record import read_run
from vitkit.training import Recipe, get_recipe
from vitkit.training.objective import Supervised
from vitkit.training.train import train


def seen_in_training(recipe: Recipe, out: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, torch.Tensor]:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    original = Supervised.__call__

    def watch(self: Supervised, model: Any, batch: TrainingBatch) -> Any:
        seen.append((batch.images.clone(), batch.targets.clone()))
        return original(self, model, batch)

    monkeypatch.setattr(Supervised, "__call__", watch)
    train(recipe, out, quiet=True)
    return seen[0]


def shown_in_report(out: Path) -> tuple[FirstBatch, Any]:
    assets = open_assets(read_run(out))
    assert assets.data is not None
    classes = len(assets.data.class_names)
    found = first_batch(assets.run.recipe, assets.data.splits["train"], classes, assets.preprocess, assets.patch_size)
    return found, assets.preprocess


@pytest.mark.parametrize(
    "changes", [[], ["augment.mixup=0.0", "augment.cutmix=1.0", "balanced_sampling=true", "seed=3"]]
)
def test_of_arrays(changes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = get_recipe("digits").override(
        ["budget.epochs=0.05", "config.depth=1", "loss.label_smoothing=0.0", *changes]
    )
    images, targets = seen_in_training(recipe, tmp_path / "run", monkeypatch)
    found, preprocess = shown_in_report(tmp_path / "run")
    np.testing.assert_array_equal(found.pixels, preprocess.denormalize(images).permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(found.shares, targets.numpy(), atol=1e-6)


@pytest.mark.parametrize("crop", ["resized", "none"])
def test_of_files_with_a_broken_one_among_them(
    crop: str, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = [f"data={photographs}", "model=vit_nano_patch4_32", "config.depth=1", "batch=8", "budget.epochs=0.2",
               "corrupt_limit=0.1", "machine.precision=fp32", "machine.compile=off", "loss.label_smoothing=0.0",
               f"augment.crop={crop}"]  # fmt: skip
    images, targets = seen_in_training(get_recipe("scratch").override(changes), tmp_path / "run", monkeypatch)
    found, preprocess = shown_in_report(tmp_path / "run")
    np.testing.assert_array_equal(found.pixels, preprocess.denormalize(images).permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(found.shares, targets.numpy(), atol=1e-6)
