"""What is minimised: (model, images, targets) → loss of the batch and what to count of it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


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
    weighted = targets if class_weights is None else targets * class_weights
    loss = -(weighted * logits.log_softmax(dim=-1)).sum(dim=-1).mean()
    with torch.no_grad():
        hits = (logits.argmax(dim=-1) == targets.argmax(dim=-1)).sum()
    return loss, hits
