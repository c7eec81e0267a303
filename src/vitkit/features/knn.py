"""The nearest neighbours vote: a classifier without training (Wu et al. 2018).

The features are compared by cosine; each of the k nearest training images votes for its class with exp(cosine / τ).
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitkit.errors import InputError

TEMPERATURE = 0.07  # τ of Wu et al. and of DINO
CANDIDATES = (1, 5, 10, 20, 50, 100, 200)
SIMILARITIES = 2**26  # numbers at a time, 256 MiB: so many rows are compared with the whole gallery


def knn(gallery: np.ndarray, labels: np.ndarray, queries: np.ndarray, classes: int, k: int) -> np.ndarray:
    """(N, classes) float32: the logarithms of the classes' shares of the vote."""
    if not 1 <= k <= len(gallery):
        raise InputError(f"k={k}: there are {len(gallery)} images to choose neighbours from, expected 1 to that many")
    known, targets = _unit(gallery), torch.from_numpy(labels)
    votes = [_vote(part @ known.T, targets, classes, k) for part in torch.split(_unit(queries), _rows(known))]
    return torch.cat(votes).numpy()


def choose_k(
    gallery: np.ndarray, labels: np.ndarray, classes: int, candidates: Sequence[int] = CANDIDATES
) -> tuple[int, dict[int, float]]:
    """The k under which most training images are recognised by the others; and the accuracy of each.

    Leaving one out costs nothing here, and no other split has to be looked at. Of equal ones the smallest.
    """
    known, targets = _unit(gallery), torch.from_numpy(labels)
    usable = [k for k in candidates if k < len(gallery)] or [1]
    hits = dict.fromkeys(usable, 0)
    for rows in torch.split(torch.arange(len(known)), _rows(known)):
        similarity = known[rows] @ known.T
        similarity[torch.arange(len(rows)), rows] = -torch.inf  # itself
        for k in usable:
            hits[k] += int((_vote(similarity, targets, classes, k).argmax(dim=1) == targets[rows]).sum())
    accuracy = {k: n / len(known) for k, n in hits.items()}
    return max(usable, key=lambda k: (accuracy[k], -k)), accuracy


def _vote(similarity: Tensor, labels: Tensor, classes: int, k: int) -> Tensor:
    near, who = similarity.topk(k, dim=1)
    weight = (near / TEMPERATURE).softmax(dim=1)
    share = torch.zeros(len(similarity), classes).scatter_add_(1, labels[who], weight)
    return share.clamp(min=torch.finfo(torch.float32).tiny).log()


def _rows(gallery: Tensor) -> int:
    return max(1, min(1024, SIMILARITIES // len(gallery)))


def _unit(features: np.ndarray) -> Tensor:
    return F.normalize(torch.from_numpy(features).float(), dim=1)
