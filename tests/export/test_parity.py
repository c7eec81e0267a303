import itertools
import time
from collections.abc import Iterator

import numpy as np
import pytest

from vitkit.errors import (
    WorkError,
)
from vitkit.export.calibration import ParityImages
from vitkit.export.export_card import _row
from vitkit.export.parity import Parity, Tolerance, measure_parity


def test_differences_above_the_tolerance_are_errors() -> None:
    def parity(agreement: float, difference: float) -> Parity:
        return Parity("x", 10, difference, 1.0, 0.0, agreement, 0, None, None, 1, 1.0, 1.0)

    tight = Tolerance(logits=1e-3, agreement=1.0, accuracy_loss=None)
    parity(1.0, 1e-5).check(tight, "it")
    with pytest.raises(WorkError, match=r"top-1 agrees on 90\.0%"):
        parity(0.9, 1e-5).check(tight, "it")
    with pytest.raises(WorkError, match="logits differ"):
        parity(1.0, float("nan")).check(tight, "it")


def parity_of(exported: np.ndarray, labels: np.ndarray | None = None) -> Parity:
    """Compare fixed logits: the first image is a near tie, the second is not."""
    torch_logits = np.array([[1.0, 1.00001, 0.0], [3.0, 1.0, 0.0]], np.float32)
    images = ParityImages("two images", np.zeros((2, 4, 4, 3), np.uint8), labels)
    return measure_parity(
        lambda pixels: torch_logits[: len(pixels)], lambda pixels: exported[: len(pixels)], images, size=1
    )


def test_a_near_tie_within_rounding_counts_as_agreement() -> None:
    parity = parity_of(np.array([[1.00002, 1.0, 0.0], [3.0, 1.0, 0.0]], np.float32), labels=np.array([1, 0]))
    assert (parity.agreement, parity.near_ties) == (1.0, 1)
    assert (parity.top1_before, parity.top1_after) == (1.0, 0.5)


def test_a_near_tie_counts_as_disagreement_if_differences_are_larger_than_rounding() -> None:
    parity = parity_of(np.array([[1.1, 1.0, 0.0], [3.0, 1.0, 0.0]], np.float32))
    assert (parity.agreement, parity.near_ties) == (0.5, 0)
    assert parity.max_logit_difference == pytest.approx(0.1, rel=1e-5)
    assert parity.top1_before is None


def test_the_entry_of_export_json_keeps_its_keys() -> None:
    entry = parity_of(np.zeros((2, 3), np.float32)).to_dict()
    assert list(entry) == [
        "images", "n", "max_logit_difference", "largest_logit", "max_score_difference", "agreement", "open_choices",
        "top1_before", "top1_after", "size", "ms", "ms_torch", "spread", "speedup",
    ]  # fmt: skip


def measure_with_pauses(pauses: Iterator[float]) -> Parity:
    """Compare two equal models, of which the one in torch is slowed by `pauses`, in seconds."""

    def model(pixels: np.ndarray, pause: float) -> np.ndarray:
        time.sleep(0.002 + pause)
        return np.tile(np.array([[1.0, 0.0]], np.float32), (len(pixels), 1))

    images = ParityImages("one image", np.zeros((1, 4, 4, 3), np.uint8))
    return measure_parity(lambda pixels: model(pixels, next(pauses)), lambda pixels: model(pixels, 0), images, size=1)


def test_a_speedup_that_comes_from_other_load_is_not_reported() -> None:
    started = time.monotonic()

    def pauses() -> Iterator[float]:
        while True:  # the load comes and goes
            yield 0.04 if (time.monotonic() - started) % 0.3 < 0.15 else 0.0

    disturbed = measure_with_pauses(pauses())
    assert disturbed.spread > 2
    assert disturbed.speedup is None
    assert disturbed.to_dict()["speedup"] is None
    assert "spread, not compared" in _row("model.onnx", disturbed)


def test_a_short_disturbance_does_not_change_the_speedup() -> None:
    parity = measure_with_pauses(itertools.chain([0.0, 0.0, 0.05, 0.05], itertools.repeat(0.0)))
    assert parity.speedup == pytest.approx(1.0, rel=0.5)
    assert " ×)" in _row("model.onnx", parity)
