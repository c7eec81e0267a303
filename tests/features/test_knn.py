import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from vitkit.errors import InputError
from vitkit.features import choose_k, knn_predict
from vitkit.features.knn import TEMPERATURE


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = load_digits(return_X_y=True)
    return pixels.astype(np.float32), labels.astype(np.int64)


@pytest.mark.parametrize("k", [1, 7, 40])
def test_the_vote_equals_that_of_scikit_learn(digits: tuple[np.ndarray, np.ndarray], k: int) -> None:
    x, y = digits
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)

    def weight(distance: np.ndarray) -> np.ndarray:  # cosine = 1 - d²/2 of unit vectors
        return np.exp((1 - distance**2 / 2) / TEMPERATURE)

    theirs = KNeighborsClassifier(k, weights=weight).fit(unit[:1400].astype(np.float64), y[:1400])
    ours = np.exp(knn_predict(x[:1400], y[:1400], x[1400:], 10, k))
    np.testing.assert_allclose(ours, theirs.predict_proba(unit[1400:].astype(np.float64)), atol=2e-3)


def test_k_is_chosen_by_leave_one_out_accuracy() -> None:
    """A quarter of the labels is wrong, so only many neighbours help."""
    rng = np.random.default_rng(0)
    centres = np.eye(3, 8, dtype=np.float32)
    labels = np.repeat(np.arange(3), 60)
    x = centres[labels] + 0.3 * rng.standard_normal((180, 8)).astype(np.float32)
    noisy = labels.copy()
    noisy[::4] = (noisy[::4] + 1) % 3
    k, accuracy = choose_k(x, noisy, 3)
    assert k >= 10
    assert accuracy[1] < accuracy[k]
    assert set(accuracy) == {1, 5, 10, 20, 50, 100}, "no more neighbours than there are others"


def test_an_image_is_not_its_own_neighbour() -> None:
    x = np.eye(4, dtype=np.float32) + 1e-3
    _, accuracy = choose_k(x, np.arange(4), 4)
    assert accuracy[1] == 0


def test_the_number_of_neighbours_is_checked(digits: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = digits
    for k in (0, 11):
        with pytest.raises(InputError, match=f"k={k}: expected 1 to 10"):
            knn_predict(x[:10], y[:10], x[10:12], 10, k)
