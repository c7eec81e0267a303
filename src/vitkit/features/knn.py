"""Weighted k-nearest-neighbour classification, which needs no training (Wu et al. 2018).

Features are compared by cosine similarity. Each of the k nearest training images votes for its class with weight
exp(cosine / τ).
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitkit.errors import InputError

TEMPERATURE = 0.07  # τ of Wu et al. and of DINO
CANDIDATES = (1, 5, 10, 20, 50, 100, 200)
MAX_SIMILARITIES = 2**26  # computed at a time: 256 MiB


def knn_predict(gallery: np.ndarray, labels: np.ndarray, queries: np.ndarray, classes: int, k: int) -> np.ndarray:
    """Return (N, classes) float32: for each query, the logarithm of each class's share of the vote."""
    if not 1 <= k <= len(gallery):
        raise InputError(f"k={k}: expected 1 to {len(gallery)}, the number of training images")
    unit_gallery, targets = _unit(gallery), torch.from_numpy(labels)
    chunks = torch.split(_unit(queries), _chunk_rows(unit_gallery))
    return torch.cat([_vote(chunk @ unit_gallery.T, targets, classes, k) for chunk in chunks]).numpy()


def choose_k(
    gallery: np.ndarray, labels: np.ndarray, classes: int, candidates: Sequence[int] = CANDIDATES
) -> tuple[int, dict[int, float]]:
    """Return the k with the best leave-one-out accuracy on the training images, and the accuracy of every candidate.

    The smallest of equally good candidates is returned. No other split is used.
    """
    unit_gallery, targets = _unit(gallery), torch.from_numpy(labels)
    feasible = [k for k in candidates if k < len(gallery)] or [1]
    hits = dict.fromkeys(feasible, 0)
    for rows in torch.split(torch.arange(len(unit_gallery)), _chunk_rows(unit_gallery)):
        similarity = unit_gallery[rows] @ unit_gallery.T
        similarity[torch.arange(len(rows)), rows] = -torch.inf  # an image is not its own neighbour
        for k in feasible:
            hits[k] += int((_vote(similarity, targets, classes, k).argmax(dim=1) == targets[rows]).sum())
    accuracy = {k: n / len(unit_gallery) for k, n in hits.items()}
    return max(feasible, key=lambda k: (accuracy[k], -k)), accuracy


def _vote(similarity: Tensor, labels: Tensor, classes: int, k: int) -> Tensor:
    nearest, indices = similarity.topk(k, dim=1)
    weight = (nearest / TEMPERATURE).softmax(dim=1)
    share = torch.zeros(len(similarity), classes).scatter_add_(1, labels[indices], weight)
    return share.clamp(min=torch.finfo(torch.float32).tiny).log()


def _chunk_rows(gallery: Tensor) -> int:
    return max(1, min(1024, MAX_SIMILARITIES // len(gallery)))


def _unit(features: np.ndarray) -> Tensor:
    return F.normalize(torch.from_numpy(features).float(), dim=1)
