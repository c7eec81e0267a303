"""Losses of logits: cross-entropy with soft targets, and distillation (Hinton et al. 2015; Touvron et al. 2021)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from vitkit.training.recipe import Distill


def cross_entropy(
    logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"], class_weights: Float[Tensor, " k"] | None = None
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy, each image weighted by the class that has the largest share of its target.

    Weighting every class's share of a smoothed target instead would move the optimum of all images to rare classes.
    """
    each = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)
    return each.mean() if class_weights is None else (each * class_weights[targets.argmax(dim=-1)]).mean()


@torch.no_grad()
def accuracy(logits: Float[Tensor, "b k"], targets: Float[Tensor, "b k"]) -> Float[Tensor, ""]:
    """Return the fraction of correct predictions. With mixed targets, the class with the larger share is correct."""
    return (logits.argmax(dim=-1) == targets.argmax(dim=-1)).float().mean()


def distillation_loss(
    logits: Float[Tensor, "b k"],
    distilled: Float[Tensor, "b k"],
    targets: Float[Tensor, "b k"],
    teacher_targets: Float[Tensor, "b k"],
    settings: Distill,
    class_weights: Float[Tensor, " k"] | None = None,
) -> Float[Tensor, ""]:
    """Return the weighted sum of the label loss of `logits` and the teacher loss of `distilled`.

    The soft teacher loss is T² KL(teacher ‖ student): T² keeps the size of its gradient independent of T.
    """
    label_loss = cross_entropy(logits, targets, class_weights)
    if settings.kind == "hard":
        teacher_loss = cross_entropy(distilled, teacher_targets)
    else:
        t = settings.temperature
        teacher_loss = t * t * F.kl_div((distilled / t).log_softmax(dim=-1), teacher_targets, reduction="batchmean")
    return (1 - settings.weight) * label_loss + settings.weight * teacher_loss


def to_teacher_targets(logits: Float[Tensor, "b k"], settings: Distill) -> Float[Tensor, "b k"]:
    """Return a teacher's targets: its top class as one-hot rows (hard), or its probabilities at the temperature."""
    if settings.kind == "hard":
        return F.one_hot(logits.argmax(dim=-1), logits.shape[-1]).float()
    return (logits.float() / settings.temperature).softmax(dim=-1)
