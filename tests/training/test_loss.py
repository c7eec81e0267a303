import numpy as np
import pytest
import torch
from torch import nn

from tests.training.small import SMALL
from vitkit.model import create_model
from vitkit.training.loss import (
    DistillationOutputs,
    distillation_loss,
    soft_targets,
    supervised_loss,
    to_teacher_targets,
)
from vitkit.training.recipe import Distill
from vitkit.training.setup import class_weights


def test_class_weights_do_not_move_the_optimum_of_an_image() -> None:
    """This holds with smoothed targets, and if one class is a hundred times as frequent as another."""
    weights = class_weights(np.repeat([0, 1], [1000, 10]), 3)
    assert weights.tolist() == pytest.approx([0.505, 50.5, 0.0])
    targets = soft_targets(torch.tensor([0, 1]), 3, 0.1)
    best = targets.log()[:, :, None, None].requires_grad_()
    loss, _ = supervised_loss(nn.Flatten(), best, targets, weights)
    assert torch.autograd.grad(loss, best)[0].abs().max() < 1e-4
    each = -(targets * targets.log()).sum(dim=1)
    assert float(loss.detach()) == pytest.approx(float((each * weights[:2]).mean()))


def model_and_batch(**changes: object) -> tuple[DistillationOutputs, torch.Tensor, torch.Tensor]:
    model = create_model("vit_tiny_patch16_224", seed=0, **{**SMALL, "image_size": 8, "num_classes": 4, **changes})
    return DistillationOutputs(model.eval()), torch.randn(6, 3, 8, 8), torch.eye(4)[torch.arange(6) % 4]


def test_the_teacher_loss_is_zero_for_equal_predictions() -> None:
    heads, images, targets = model_and_batch()
    d = Distill(weight=1.0, temperature=3.0)
    answers = to_teacher_targets(heads.model(images).detach(), d)
    loss, _ = distillation_loss(heads, images, targets, answers, d)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    other, _ = distillation_loss(heads, images, targets, answers.roll(1, dims=1), d)
    assert other.item() > 1e-3


def test_with_zero_weight_the_loss_is_the_label_loss() -> None:
    heads, images, targets = model_and_batch()
    answers = torch.full((6, 4), 0.25)
    costs = torch.tensor([1.0, 2.0, 0.5, 1.0])
    for d in (Distill(weight=0.0), Distill(weight=0.0, kind="hard")):
        loss, hits = distillation_loss(heads, images, targets, answers, d, costs)
        expected, expected_hits = supervised_loss(heads.model, images, targets, costs)
        torch.testing.assert_close(loss, expected)
        assert hits == expected_hits


def test_soft_distillation_is_the_kl_divergence_times_the_squared_temperature() -> None:
    heads, images, targets = model_and_batch()
    logits = torch.randn(6, 4)
    p, q = (logits / 2).softmax(dim=1), (heads.model(images) / 2).softmax(dim=1)
    expected = 4 * (p * (p / q).log()).sum(dim=1).mean()
    d = Distill(weight=1.0, temperature=2.0)
    torch.testing.assert_close(distillation_loss(heads, images, targets, to_teacher_targets(logits, d), d)[0], expected)


def test_a_distillation_token_learns_from_the_teacher_and_the_class_token_from_the_labels() -> None:
    heads, images, targets = model_and_batch(distillation=True)
    d = Distill(weight=0.5, kind="hard")
    answers = to_teacher_targets(torch.randn(6, 4), d)
    labels, taught = heads.model.forward_heads(images)
    expected = (torch.nn.functional.cross_entropy(labels, targets.argmax(1)) +
                torch.nn.functional.cross_entropy(taught, answers.argmax(1))) / 2  # fmt: skip
    torch.testing.assert_close(distillation_loss(heads, images, targets, answers, d)[0], expected)
