"""A linear classifier on frozen features: multinomial logistic regression, its regularisation chosen on training data.

min over W, b of   mean cross-entropy(W x + b, y) + λ/2 ‖W‖²

The features are standardised first, and W and b are given for the features as they are: the result is a plain
`nn.Linear`. The problem is convex, so L-BFGS finds the one answer, whatever the start: in float32 while λ is being
chosen, in float64 for the answer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitkit.data.rng import uniform

PATH = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # λ, strong to weak: each answer is where the next begins
FOLDS = 3
MANY = 20_000  # images; from here on one fold is left out instead of each in turn


@dataclass(frozen=True)
class Probe:
    weight: Tensor  # (K, D) float32
    bias: Tensor  # (K,) float32
    strength: float  # λ
    accuracy: float  # of training images that were left out of the fit, with this λ
    path: dict[float, float]  # λ → that accuracy


def fit_probe(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    *,
    seed: int = 0,
    path: Sequence[float] = PATH,
    class_weights: Tensor | None = None,
) -> Probe:
    """Cross-validate along the path on these images alone, then fit all of them with the λ chosen."""
    x, centre, scale = _standardise(torch.from_numpy(features).double())
    y = torch.from_numpy(labels)
    costs = None if class_weights is None else class_weights.cpu()
    fold = folds(labels, seed)
    left_out = range(FOLDS if len(y) < MANY else 1)
    hits = torch.zeros(len(path), dtype=torch.long)
    for part in left_out:
        inside, outside = torch.from_numpy(fold != part), torch.from_numpy(fold == part)
        for i, (weight, bias) in enumerate(_fit_path(x[inside].float(), y[inside], classes, path, costs)):
            logits = x[outside].float() @ weight.T + bias
            hits[i] += (logits.argmax(dim=1) == y[outside]).sum()
    count = int(np.isin(fold, list(left_out)).sum())
    accuracy = {strength: int(n) / count for strength, n in zip(path, hits, strict=True)}
    chosen = _strongest(hits, count)
    weight, bias = _fit_path(x, y, classes, path[: chosen + 1], costs)[-1]
    weight = weight / scale
    bias = bias - weight @ centre
    return Probe(weight.float(), bias.float(), path[chosen], accuracy[path[chosen]], accuracy)


def _strongest(hits: Tensor, count: int) -> int:
    """The strongest λ whose accuracy is within a standard error of the best one's (Breiman et al. 1984).

    Left-out images are of the same kind as the others, new ones often are not; and a classifier that is less sure of
    itself is the better place to go on from.
    """
    best = hits.max().item() / count
    error = math.sqrt(best * (1 - best) / count)
    return next(i for i in range(len(hits)) if hits[i].item() / count >= best - error)


def folds(labels: np.ndarray, seed: int) -> np.ndarray:
    """(N,) fold numbers, every class spread evenly over them; a pure function of labels and seed."""
    order = np.lexsort((uniform("fold", seed, np.arange(len(labels))), labels))
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % FOLDS
    return fold


def _standardise(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    centre, scale = x.mean(dim=0), x.std(dim=0, correction=0).clamp(min=1e-6)
    return (x - centre) / scale, centre, scale


def _fit_path(
    x: Tensor, y: Tensor, classes: int, path: Sequence[float], costs: Tensor | None
) -> list[tuple[Tensor, Tensor]]:
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    found = []
    for strength in path:
        _minimise(weight, bias, x, y, strength, costs)
        found.append((weight.detach().clone(), bias.detach().clone()))
    return found


def _minimise(weight: Tensor, bias: Tensor, x: Tensor, y: Tensor, strength: float, costs: Tensor | None) -> None:
    solver = torch.optim.LBFGS(
        [weight, bias], max_iter=200, tolerance_grad=1e-5, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    costs = None if costs is None else costs.to(x)

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(x @ weight.T + bias, y, costs) + strength / 2 * weight.square().sum()
        torch.autograd.backward(loss)
        return loss

    solver.step(closure)  # type: ignore[no-untyped-call]  # torch's own
