import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from vitkit.features import fit_linear_probe
from vitkit.features.linear import FOLDS, stratified_folds


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = load_digits(return_X_y=True)
    return (10 + 3 * pixels).astype(np.float32)[:900], labels.astype(np.int64)[:900]


@pytest.mark.parametrize("balanced", [False, True])
def test_the_solution_equals_that_of_scikit_learn(digits: tuple[np.ndarray, np.ndarray], balanced: bool) -> None:
    """scikit-learn sums the loss and we average it: C = 1 / (λ n). Our weights include the standardization."""
    x, y = digits
    y = np.minimum(y, 6)  # the last class is larger
    counts = np.bincount(y)
    costs = torch.tensor(len(y) / (7 * counts), dtype=torch.float32) if balanced else None
    probe = fit_linear_probe(x, y, 7, path=(1e-2,), class_weights=costs)
    scale = np.maximum(x.std(axis=0), 1e-6)
    z = ((x - x.mean(axis=0)) / scale).astype(np.float64)
    theirs = LogisticRegression(
        C=1 / (1e-2 * len(y)), tol=1e-8, max_iter=2000, class_weight="balanced" if balanced else None
    ).fit(z, y)
    ours = torch.from_numpy(x).double() @ probe.weight.double().T + probe.bias.double()
    np.testing.assert_allclose(ours.softmax(dim=1).numpy(), theirs.predict_proba(z), atol=2e-3)


def test_the_strongest_regularization_within_one_standard_error_is_chosen(
    digits: tuple[np.ndarray, np.ndarray],
) -> None:
    probe = fit_linear_probe(*digits, 10)
    best = max(probe.cv_path.values())
    worst_allowed = best - (best * (1 - best) / len(digits[1])) ** 0.5
    assert probe.regularization == max(strength for strength, found in probe.cv_path.items() if found >= worst_allowed)
    assert probe.cv_accuracy == probe.cv_path[probe.regularization]
    assert 0.9 < probe.cv_accuracy < best < 1, "of images that were not fitted"


def test_constant_features_and_empty_classes_are_handled(digits: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = digits
    x = np.concatenate([x[:200], np.full((200, 1), 3, np.float32)], axis=1)
    probe = fit_linear_probe(x, y[:200], 12)
    assert probe.weight.shape == (12, 65)
    assert torch.isfinite(probe.weight).all()
    assert not ((torch.from_numpy(x) @ probe.weight.T + probe.bias).argmax(dim=1) >= 10).any()


def test_the_folds_are_stratified_and_reproducible() -> None:
    labels = np.random.default_rng(0).integers(0, 5, 203)
    fold = stratified_folds(labels, seed=3)
    for k in range(5):
        counts = np.bincount(fold[labels == k], minlength=FOLDS)
        assert counts.max() - counts.min() <= 1
    assert np.array_equal(fold, stratified_folds(labels, seed=3))
    assert not np.array_equal(fold, stratified_folds(labels, seed=4))
