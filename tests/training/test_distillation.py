"""Distillation as short runs on the handwritten digits."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.multi_process import train as train_processes
from tests.training.small import SHORT, SMALL, train_until, uninterrupted_and_resumed
from vitkit.data.dataset import ArrayImages, Split
from vitkit.errors import ConfigError, UsageError
from vitkit.training import Recipe, get_recipe
from vitkit.training.distillation import make_teacher
from vitkit.training.recipe import Distill
from vitkit.training.train import train
from vitkit.weights.load import load_model
from vitkit.weights.model_dir import save_model


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a teacher of all digits that is better than its students."""
    folder = tmp_path_factory.mktemp("teacher")
    recipe = get_recipe("digits").replace(config={**SMALL, "width": 32, "drop_path": 0.0})
    train(
        recipe.override(["budget.epochs=6", "budget.validate_every=6", "optimizer.lr=4e-3"]), folder / "run", quiet=True
    )
    return folder / "run"


def student(teacher: Path, *changes: str) -> Recipe:
    recipe = get_recipe("digits").replace(config={**SMALL, "dropout": 0.1})
    return recipe.override([*SHORT, f"distill.teacher={teacher}", *changes])


@pytest.mark.parametrize("changes", [("distill.kind=hard",), ("distill.sees=original",), ("config.distillation=true",)])
def test_a_distillation_resumes_bit_for_bit(teacher: Path, tmp_path: Path, changes: tuple[str, ...]) -> None:
    uninterrupted, resumed = uninterrupted_and_resumed(student(teacher, *changes), tmp_path)
    assert resumed.weights_sha256 == uninterrupted.weights_sha256


def test_a_run_is_not_resumed_with_another_teacher(teacher: Path, tmp_path: Path) -> None:

    shutil.copytree(teacher / "model", tmp_path / "teacher")
    recipe = student(tmp_path / "teacher")
    train_until(2, recipe, tmp_path / "run")
    model = load_model(tmp_path / "teacher")
    with torch.no_grad():
        model.head.bias[0] += 1

    save_model(model, tmp_path / "teacher")
    with pytest.raises(UsageError, match=r"distill\.teacher_sha256 is .*: use the same"):
        train(recipe, tmp_path / "run", resume=True, quiet=True)


def test_a_teacher_of_other_classes_is_refused(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not know 10 of the 10 classes, such as '0': fine-tune it"):
        train(student(weights), tmp_path / "run", quiet=True)


def test_a_student_learns_from_the_teacher_without_labels(teacher: Path, tmp_path: Path) -> None:
    """The labels have no weight in the loss."""
    alone = ["distill.weight=1", "budget.epochs=4", "budget.validate_every=4", "optimizer.lr=3e-3"]
    assert train(student(teacher, *alone), tmp_path / "run", quiet=True).val["top1"] > 0.6


def test_a_teacher_gets_the_pixels_in_its_own_normalisation_and_class_order(teacher: Path, tmp_path: Path) -> None:
    """With other normalisation and class order, equal pixels give equal targets."""

    model = load_model(teacher)
    own = model.info.preprocess
    names = list(reversed(model.info.class_names))
    other = own.replace(mean=(0.1,), std=(0.9,))
    pixels = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    split = Split(ArrayImages(pixels[:, 0].numpy(), "made"), np.zeros(5, dtype=np.int64))
    d = Distill(teacher="it", temperature=1.0)
    online = make_teacher(d, model, names, other, split, torch.device("cpu"))
    with torch.no_grad():
        expected = model(own.normalize(pixels)).softmax(dim=1).flip(1)
    torch.testing.assert_close(online.targets(other.normalize(pixels)), expected, rtol=1e-3, atol=1e-5)
    cached = make_teacher(dataclasses.replace(d, sees="original"), model, names, other, split, torch.device("cpu"))
    assert cached.cached_logits is not None
    torch.testing.assert_close(cached.cached_logits.softmax(dim=1), expected, rtol=1e-3, atol=1e-5)


def test_distillation_in_two_processes_equals_one(teacher: Path, tmp_path: Path) -> None:
    changes = (f"distill.teacher={teacher}", "config.distillation=true", "budget.epochs=0.5")
    one, two = (train_processes(tmp_path / str(n), n, *changes) for n in (1, 2))
    assert one["steps"] == two["steps"]
    assert two["val"]["nll"] == pytest.approx(one["val"]["nll"], rel=2e-3)
