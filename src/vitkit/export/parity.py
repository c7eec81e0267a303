"""Is the exported model still the model? Measured on real images, in the runtime, right after the export."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from vitkit.errors import WorkError
from vitkit.export.calibration import CheckSet
from vitkit.inference.scores import softmax
from vitkit.runtime.timing import medians, time_calls

Run = Callable[[np.ndarray], np.ndarray]  # (B, H, W, C) uint8 → (B, K) logits

_BATCH = 16
_ROUNDS = 7


@dataclass(frozen=True)
class Tolerance:
    """What is still the same model. Where the two best logits lie closer than they may move, either may win."""

    logits: float | None  # the largest difference of any logit; None: whatever it is
    agreement: float  # the least share of images with the same top-1
    accuracy_loss: float | None  # the most that top-1 on labelled images may fall; None: agreement says enough


FP32 = Tolerance(logits=1e-3, agreement=1.0, accuracy_loss=None)
INT8 = Tolerance(logits=None, agreement=0.9, accuracy_loss=0.02)


@dataclass(frozen=True)
class Parity:
    images: str  # what was compared on
    n: int
    max_logit_difference: float
    largest_logit: float  # in magnitude, of the original: the scale of the line above
    max_score_difference: float
    agreement: float  # share of images with the same top-1
    open_choices: int  # images whose two best logits lie closer than the largest difference: not counted against it
    top1_before: float | None  # on labelled images
    top1_after: float | None
    size: int  # bytes on the disk
    ms: float  # one image
    ms_torch: float  # the same through the torch model, measured in turns with it

    @property
    def speedup(self) -> float:
        return self.ms_torch / self.ms

    def to_dict(self) -> dict[str, object]:
        return {**vars(self), "speedup": self.speedup}

    def judge(self, tolerance: Tolerance, what: str) -> None:
        """Raise where the export is another model."""
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
            raise WorkError(f"{what}: not the same model on {self.n} images ({self.images}): {found}; nothing was kept")


def measure(original: Run, exported: Run, check: CheckSet, size: int) -> Parity:
    before, after = (_all(run, check.pixels) for run in (original, exported))
    differences = np.abs(after - before)
    worst = float(differences.max())
    best_two = np.sort(before, axis=1)[:, -2:]
    gap = best_two[:, -1] - best_two[:, 0] if before.shape[1] > 1 else np.full(len(before), np.inf)
    # Int8 moves everything a little: there a near tie is a change of mind like any other.
    open_choice = gap <= 2 * differences.max(axis=1) if worst <= (FP32.logits or 0) else np.zeros(len(gap), bool)
    same = before.argmax(axis=1) == after.argmax(axis=1)
    runs = {"torch": partial(original, check.pixels[:1]), "exported": partial(exported, check.pixels[:1])}
    seconds = medians(time_calls(runs, _ROUNDS))
    tops = [None if check.labels is None else float((x.argmax(axis=1) == check.labels).mean()) for x in (before, after)]
    return Parity(
        images=check.name,
        n=len(check.pixels),
        max_logit_difference=worst,
        largest_logit=float(np.abs(before).max()),
        max_score_difference=float(np.abs(softmax(after) - softmax(before)).max()),
        agreement=float((same | open_choice).mean()),
        open_choices=int(open_choice.sum()),
        top1_before=tops[0],
        top1_after=tops[1],
        size=size,
        ms=1e3 * seconds["exported"],
        ms_torch=1e3 * seconds["torch"],
    )


def folder_size(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def _all(run: Run, pixels: np.ndarray) -> np.ndarray:
    return np.concatenate([run(pixels[i : i + _BATCH]) for i in range(0, len(pixels), _BATCH)])
