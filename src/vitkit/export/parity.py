"""Compares an exported model with the torch model, on real images and in the target runtime."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from vitkit.errors import WorkError
from vitkit.export.calibration import ParityImages
from vitkit.export.runtimes import softmax
from vitkit.runtime.timing import Run, medians, time_calls

Model = Callable[[np.ndarray], np.ndarray]  # (B, H, W, C) uint8 → (B, K) logits

_BATCH_SIZE = 16
_ROUNDS, _ATTEMPTS = 7, 3
_TURN_SECONDS = 0.03
MAX_SPREAD = 1.5  # of the speed-ups of the rounds: above it other load disturbed them, and none is reported


@dataclass(frozen=True)
class Tolerance:
    """The largest accepted differences between an export and the torch model."""

    logits: float | None  # the largest difference of a logit; None: any
    agreement: float  # the smallest share of images with the same top-1 class
    accuracy_loss: float | None  # the largest loss of top-1 accuracy on labelled images; None: any


FP32 = Tolerance(logits=1e-3, agreement=1.0, accuracy_loss=None)
INT8 = Tolerance(logits=None, agreement=0.9, accuracy_loss=0.02)


@dataclass(frozen=True)
class Parity:
    """The measured differences between an export and the torch model."""

    images: str  # the name of the images
    n: int
    max_logit_difference: float
    largest_logit: float  # magnitude in the torch model: the scale of the difference
    max_score_difference: float
    agreement: float  # share of images with the same top-1 class
    near_ties: int  # images whose two best logits are closer than the difference; they count as agreement
    top1_before: float | None  # accuracy on labelled images
    top1_after: float | None
    size: int  # bytes on disk
    ms: float  # for one image
    ms_torch: float  # for one image in torch, measured in interleaved rounds
    spread: float = 1.0  # largest over smallest speed-up of the rounds, without the two extremes

    @property
    def speedup(self) -> float | None:
        """The speed compared with torch; None if the rounds disagree."""
        return self.ms_torch / self.ms if self.spread <= MAX_SPREAD else None

    def to_dict(self) -> dict[str, object]:
        """Return the entry of export.json, where `near_ties` is named open_choices."""
        names = {"near_ties": "open_choices"}
        return {**{names.get(name, name): value for name, value in vars(self).items()}, "speedup": self.speedup}

    def check(self, tolerance: Tolerance, subject: str) -> None:
        """Raise an error if a difference exceeds its tolerance. `subject` begins the message."""
        loss = (self.top1_before or 0.0) - (self.top1_after or 0.0)
        problems = [
            f"logits differ by up to {self.max_logit_difference:.2g}, more than {tolerance.logits:.2g}"
            if tolerance.logits is not None and not self.max_logit_difference <= tolerance.logits else "",
            f"top-1 agrees on {self.agreement:.1%} of the images, less than {tolerance.agreement:.1%}"
            if not self.agreement >= tolerance.agreement else "",
            f"top-1 falls by {loss:.2%}, more than {tolerance.accuracy_loss or 0:.2%}"
            if tolerance.accuracy_loss is not None and loss > tolerance.accuracy_loss + 1e-9 else "",
        ]  # fmt: skip
        if found := "; ".join(filter(None, problems)):
            raise WorkError(
                f"{subject} differs from the torch model on {self.n} images ({self.images}): {found}; "
                "nothing was written"
            )


def measure_parity(original: Model, exported: Model, images: ParityImages, size: int) -> Parity:
    """Run both models on the images and return their differences and speeds. `size` is the export's size in bytes."""
    before, after = (_logits(model, images.pixels) for model in (original, exported))
    differences = np.abs(after - before)
    largest = float(differences.max())
    best_two = np.sort(before, axis=1)[:, -2:]
    gap = best_two[:, -1] - best_two[:, 0] if before.shape[1] > 1 else np.full(len(before), np.inf)
    # Only rounding is excused: if differences are larger, as in int8, a changed near tie counts as a disagreement.
    near_tie = gap <= 2 * differences.max(axis=1) if largest <= (FP32.logits or 0) else np.zeros(len(gap), bool)
    same = before.argmax(axis=1) == after.argmax(axis=1)
    seconds, spread = _speeds(partial(original, images.pixels[:1]), partial(exported, images.pixels[:1]))
    labels = images.labels
    top1 = [None if labels is None else float((x.argmax(axis=1) == labels).mean()) for x in (before, after)]
    return Parity(
        images=images.name,
        n=len(images.pixels),
        max_logit_difference=largest,
        largest_logit=float(np.abs(before).max()),
        max_score_difference=float(np.abs(softmax(after) - softmax(before)).max()),
        agreement=float((same | near_tie).mean()),
        near_ties=int(near_tie.sum()),
        top1_before=top1[0],
        top1_after=top1[1],
        size=size,
        ms=1e3 * seconds["exported"],
        ms_torch=1e3 * seconds["torch"],
        spread=spread,
    )


def _speeds(original: Run, exported: Run) -> tuple[dict[str, float], float]:
    """Return the median seconds of both, and the spread of their ratio. Disturbed measurements are repeated."""
    for _ in range(_ATTEMPTS):
        runs = {"torch": original, "exported": exported}
        rounds = [medians(time_calls(runs, 1, warmup=0, turn_seconds=_TURN_SECONDS)) for _ in range(_ROUNDS)]
        ratios = sorted(each["torch"] / each["exported"] for each in rounds)
        spread = ratios[-2] / ratios[1]
        if spread <= MAX_SPREAD:
            break
    return medians({name: [each[name] for each in rounds] for name in runs}), spread


def _logits(model: Model, pixels: np.ndarray) -> np.ndarray:
    return np.concatenate([model(pixels[i : i + _BATCH_SIZE]) for i in range(0, len(pixels), _BATCH_SIZE)])
