"""Training losses: (model, images, targets) → mean loss of the batch, number of correct predictions.

Supervised, or with distillation from a teacher (Hinton et al. 2015; Touvron et al. 2021).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitkit.model import ViT
from vitkit.training.recipe import Distill


def soft_targets(labels: Int[Tensor, " b"], classes: int, smoothing: float) -> Float[Tensor, "b k"]:
    """Return one-hot rows with label smoothing (Szegedy et al. 2016)."""
    return F.one_hot(labels, classes).float() * (1 - smoothing) + smoothing / classes


def supervised_loss(
    model: nn.Module,
    images: Float[Tensor, "b c h w"],
    targets: Float[Tensor, "b k"],
    class_weights: Float[Tensor, " k"] | None = None,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Return the mean cross-entropy with soft targets, and the number of correct predictions.

    With mixed targets, the class with the larger share counts as correct. The softmax is computed in float32.
    """
    logits = model(images).float()
    return _cross_entropy(logits, targets, class_weights), _correct(logits, targets)


class DistillationOutputs(nn.Module):
    """Wraps a ViT to return logits for the labels and for the teacher (of the distillation token, if it has one)."""

    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "b c h w"]) -> tuple[Float[Tensor, "b k"], Float[Tensor, "b k"]]:
        logits, distilled = self.model.forward_heads(images)
        return logits, logits if distilled is None else distilled


def distillation_loss(
    outputs: nn.Module,
    images: Float[Tensor, "b c h w"],
    targets: Float[Tensor, "b k"],
    teacher_targets: Float[Tensor, "b k"],
    settings: Distill,
    class_weights: Float[Tensor, " k"] | None = None,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """Return the weighted sum of the label loss and the teacher loss, and the number of correct predictions.

    The soft teacher loss is T² KL(teacher ‖ student): T² keeps the size of its gradient independent of T.
    """
    logits, distilled = (each.float() for each in outputs(images))
    label_loss = _cross_entropy(logits, targets, class_weights)
    if settings.kind == "hard":
        teacher_loss = _cross_entropy(distilled, teacher_targets, None)
    else:
        t = settings.temperature
        teacher_loss = t * t * F.kl_div((distilled / t).log_softmax(dim=-1), teacher_targets, reduction="batchmean")
    return (1 - settings.weight) * label_loss + settings.weight * teacher_loss, _correct(logits, targets)


def to_teacher_targets(logits: Float[Tensor, "b k"], settings: Distill) -> Float[Tensor, "b k"]:
    """Return a teacher's targets: its top class as one-hot rows (hard), or its probabilities at the temperature."""
    if settings.kind == "hard":
        return F.one_hot(logits.argmax(dim=-1), logits.shape[-1]).float()
    return (logits.float() / settings.temperature).softmax(dim=-1)


def _cross_entropy(logits: Tensor, targets: Tensor, class_weights: Tensor | None) -> Tensor:
    """Return the mean cross-entropy, each image weighted by the class that has the largest share of its target.

    Weighting every class's share of a smoothed target instead would move the optimum of all images to rare classes.
    """
    each = -(targets * logits.log_softmax(dim=-1)).sum(dim=-1)
    return each.mean() if class_weights is None else (each * class_weights[targets.argmax(dim=-1)]).mean()


def _correct(logits: Tensor, targets: Tensor) -> Tensor:
    with torch.no_grad():
        return (logits.argmax(dim=-1) == targets.argmax(dim=-1)).sum()
