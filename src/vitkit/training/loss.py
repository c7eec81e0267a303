"""What is minimised: (model, images, targets) → loss of the batch and what to count of it.

Supervised, or distillation from a teacher's answers (Hinton et al. 2015; Touvron et al. 2021).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitkit.model import ViT
from vitkit.training.recipe import Distill


def soft_targets(labels: Int[Tensor, " b"], classes: int, smoothing: float) -> Float[Tensor, "b k"]:
    """One-hot rows with a share of the weight spread over all classes (Szegedy et al. 2016)."""
    return F.one_hot(labels, classes).float() * (1 - smoothing) + smoothing / classes


def supervised(
    model: nn.Module,
    images: Float[Tensor, "b c h w"],
    targets: Float[Tensor, "b k"],
    class_weights: Float[Tensor, " k"] | None = None,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Cross-entropy with soft targets, averaged over the batch; and how many were hit.

    With mixed targets a hit is the larger share. The softmax is taken in float32 whatever the model runs in.
    """
    logits = model(images).float()
    return _cross_entropy(logits, targets, class_weights), _hits(logits, targets)


class Heads(nn.Module):
    """(labels' logits, logits that learn from the teacher): a distillation token's own, or the same."""

    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "b c h w"]) -> tuple[Float[Tensor, "b k"], Float[Tensor, "b k"]]:
        logits, taught = self.model.forward_heads(images)
        return logits, logits if taught is None else taught


def distilled(
    heads: nn.Module,
    images: Float[Tensor, "b c h w"],
    targets: Float[Tensor, "b k"],
    answers: Float[Tensor, "b k"],
    settings: Distill,
    class_weights: Float[Tensor, " k"] | None = None,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """The labels' cross-entropy and the teacher's part, weighted.

    `answers` are the teacher's probabilities at the temperature (soft) or its choice (hard). The soft part is
    T² KL(teacher ‖ student): its gradient keeps its size whatever the temperature.
    """
    logits, taught = (part.float() for part in heads(images))
    label_loss = _cross_entropy(logits, targets, class_weights)
    if settings.kind == "hard":
        teacher_loss = _cross_entropy(taught, answers, None)
    else:
        t = settings.temperature
        teacher_loss = t * t * F.kl_div((taught / t).log_softmax(dim=-1), answers, reduction="batchmean")
    return (1 - settings.weight) * label_loss + settings.weight * teacher_loss, _hits(logits, targets)


def teacher_answers(logits: Float[Tensor, "b k"], settings: Distill) -> Float[Tensor, "b k"]:
    """What is to be learned from a teacher's logits."""
    if settings.kind == "hard":
        return F.one_hot(logits.argmax(dim=-1), logits.shape[-1]).float()
    return (logits.float() / settings.temperature).softmax(dim=-1)


def _cross_entropy(logits: Tensor, targets: Tensor, class_weights: Tensor | None) -> Tensor:
    """A weight is the image's, by the class that has most of it. On each class's share of a smoothed target it would
    move the optimum: to a rare class, for every image."""
    each = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)
    return each.mean() if class_weights is None else (each * class_weights[targets.argmax(dim=-1)]).mean()


def _hits(logits: Tensor, targets: Tensor) -> Tensor:
    with torch.no_grad():
        return (logits.argmax(dim=-1) == targets.argmax(dim=-1)).sum()
