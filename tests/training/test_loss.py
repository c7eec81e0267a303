import numpy as np
import pytest
import torch

from vitkit.data.training_batch import soft_targets
from vitkit.training.loss import accuracy, cross_entropy, distillation_loss, to_teacher_targets
from vitkit.training.recipe import Distill
from vitkit.training.setup import class_weights


def test_class_weights_do_not_move_the_optimum_of_an_image() -> None:
    """This holds with smoothed targets, and if one class is a hundred times as frequent as another."""
    weights = class_weights(np.repeat([0, 1], [1000, 10]), 3)
    assert weights.tolist() == pytest.approx([0.505, 50.5, 0.0])
    targets = soft_targets(torch.tensor([0, 1]), 3, 0.1)
    best = targets.log().requires_grad_()
    loss = cross_entropy(best, targets, weights)
    assert torch.autograd.grad(loss, best)[0].abs().max() < 1e-4
    each = -(targets * targets.log()).sum(dim=1)
    assert float(loss.detach()) == pytest.approx(float((each * weights[:2]).mean()))


LOGITS, TARGETS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.eye(4)[torch.arange(6) % 4]


def test_accuracy_counts_the_class_with_the_largest_share() -> None:
    targets = torch.tensor([[0.6, 0.4], [0.3, 0.7], [1.0, 0.0]])
    assert accuracy(torch.tensor([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]]), targets).item() == pytest.approx(2 / 3)


def test_the_teacher_loss_is_zero_for_equal_predictions() -> None:
    d = Distill(weight=1.0, temperature=3.0)
    answers = to_teacher_targets(LOGITS, d)
    assert distillation_loss(LOGITS, LOGITS, TARGETS, answers, d).item() == pytest.approx(0, abs=1e-6)
    assert distillation_loss(LOGITS, LOGITS, TARGETS, answers.roll(1, dims=1), d).item() > 1e-3


def test_with_zero_weight_the_loss_is_the_label_loss() -> None:
    costs = torch.tensor([1.0, 2.0, 0.5, 1.0])
    for d in (Distill(weight=0.0), Distill(weight=0.0, kind="hard")):
        loss = distillation_loss(LOGITS, LOGITS, TARGETS, torch.full((6, 4), 0.25), d, costs)
        torch.testing.assert_close(loss, cross_entropy(LOGITS, TARGETS, costs))


def test_soft_distillation_is_the_kl_divergence_times_the_squared_temperature() -> None:
    other = LOGITS.flip(0)
    p, q = (other / 2).softmax(dim=1), (LOGITS / 2).softmax(dim=1)
    expected = 4 * (p * (p / q).log()).sum(dim=1).mean()
    d = Distill(weight=1.0, temperature=2.0)
    torch.testing.assert_close(distillation_loss(LOGITS, LOGITS, TARGETS, to_teacher_targets(other, d), d), expected)


def test_hard_distillation_is_the_cross_entropy_with_the_top_class() -> None:
    d, distilled = Distill(weight=0.5, kind="hard"), LOGITS.roll(1, dims=0)
    answers = to_teacher_targets(LOGITS.flip(1), d)
    expected = (torch.nn.functional.cross_entropy(LOGITS, TARGETS.argmax(1)) +
                torch.nn.functional.cross_entropy(distilled, answers.argmax(1))) / 2  # fmt: skip
    torch.testing.assert_close(distillation_loss(LOGITS, distilled, TARGETS, answers, d), expected)
