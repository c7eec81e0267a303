"""Linear probe: multinomial logistic regression on frozen features, its regularization chosen by cross-validation.

min over W, b of   mean cross-entropy(W x + b, y) + λ/2 ‖W‖²

The features are standardized first. The returned W and b apply to the original features, so the result is a plain
`nn.Linear`. The problem is convex, so L-BFGS reaches the same solution from any start. It runs in float32 during
cross-validation and in float64 for the final fit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitkit.data.rng import uniform

PATH = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # λ, strong to weak: each solution is the start of the next fit
FOLDS = 3
ONE_FOLD_FROM = 20_000  # images: from here on a single fold is held out, for speed


@dataclass(frozen=True)
class LinearProbe:
    weight: Tensor  # (K, D) float32
    bias: Tensor  # (K,) float32
    regularization: float  # λ
    cv_accuracy: float  # cross-validated accuracy on the training images with this λ
    cv_path: dict[float, float]  # λ → its cross-validated accuracy


def fit_linear_probe(
    features: np.ndarray,
    labels: np.ndarray,
    classes: int,
    *,
    seed: int = 0,
    path: Sequence[float] = PATH,
    class_weights: Tensor | None = None,
) -> LinearProbe:
    """Choose λ from `path` by cross-validation, fit all images with it, and return the probe."""
    x, y = torch.from_numpy(features).double(), torch.from_numpy(labels)
    center, scale = x.mean(dim=0), x.std(dim=0, correction=0).clamp(min=1e-6)
    x = (x - center) / scale
    weights = None if class_weights is None else class_weights.cpu()
    fold = stratified_folds(labels, seed)
    held_out = range(FOLDS if len(y) < ONE_FOLD_FROM else 1)
    hits = torch.zeros(len(path), dtype=torch.long)
    for part in held_out:
        train, test = torch.from_numpy(fold != part), torch.from_numpy(fold == part)
        for i, (weight, bias) in enumerate(_fit_path(x[train].float(), y[train], classes, path, weights)):
            logits = x[test].float() @ weight.T + bias
            hits[i] += (logits.argmax(dim=1) == y[test]).sum()
    count = int(np.isin(fold, list(held_out)).sum())
    accuracy = {strength: int(n) / count for strength, n in zip(path, hits, strict=True)}
    chosen = _one_standard_error_rule(hits, count)
    weight, bias = _fit_path(x, y, classes, path[: chosen + 1], weights)[-1]
    weight = weight / scale
    bias = bias - weight @ center
    return LinearProbe(weight.float(), bias.float(), path[chosen], accuracy[path[chosen]], accuracy)


def _one_standard_error_rule(hits: Tensor, count: int) -> int:
    """Return the index of the strongest λ within one standard error of the best accuracy (Breiman et al. 1984).

    Held-out images resemble the training images more than new ones do. A less confident classifier is also a better
    start for fine-tuning.
    """
    best = hits.max().item() / count
    error = math.sqrt(best * (1 - best) / count)
    return next(i for i in range(len(hits)) if hits[i].item() / count >= best - error)


def stratified_folds(labels: np.ndarray, seed: int) -> np.ndarray:
    """Return (N,) fold numbers with every class divided evenly: a pure function of labels and seed."""
    order = np.lexsort((uniform("fold", seed, np.arange(len(labels))), labels))
    fold = np.empty(len(labels), dtype=np.int64)
    fold[order] = np.arange(len(labels)) % FOLDS
    return fold


def _fit_path(
    x: Tensor, y: Tensor, classes: int, path: Sequence[float], class_weights: Tensor | None
) -> list[tuple[Tensor, Tensor]]:
    weight = torch.zeros(classes, x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(classes, dtype=x.dtype, requires_grad=True)
    solutions = []
    for strength in path:
        _minimize(weight, bias, x, y, strength, None if class_weights is None else class_weights.to(x))
        solutions.append((weight.detach().clone(), bias.detach().clone()))
    return solutions


def _minimize(
    weight: Tensor, bias: Tensor, x: Tensor, y: Tensor, strength: float, class_weights: Tensor | None
) -> None:
    solver = torch.optim.LBFGS(
        [weight, bias], max_iter=200, tolerance_grad=1e-5, tolerance_change=1e-9, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(x @ weight.T + bias, y, class_weights) + strength / 2 * weight.square().sum()
        torch.autograd.backward(loss)
        return loss

    solver.step(closure)  # type: ignore[no-untyped-call]  # torch has no annotation here
