"""Compare two recipes by runs with several seeds each: the difference of their mean accuracies, and its interval."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.errors import UsageError
from vitkit.evaluation import mean_interval
from vitkit.evaluation.comparison import same_samples, student_t
from vitkit.evaluation.metrics import LEVEL, Interval
from vitkit.report.run_record import RunRecord, read_run


@dataclass(frozen=True)
class RecipeComparison:
    """Top-1 accuracy of recipe B compared with recipe A, over seeds."""

    split: str  # test, or val if a run has no test split
    seeds_a: Sequence[int]
    seeds_b: Sequence[int]
    mean_a: float
    mean_b: float
    std_a: float  # of a single run
    std_b: float
    difference: float  # mean_b − mean_a
    interval: Interval  # of the difference, 95 %, by Student's t over the seeds
    paired: bool  # True: runs with the same seed were evaluated on the same images, and are compared in pairs

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"interval": list(self.interval)}

    def summary(self, a: str = "A", b: str = "B") -> str:
        """Return one paragraph in words. Differences are in percentage points."""
        difference, low, high = (100 * value for value in (self.difference, *self.interval))
        shown = low > 0 or high < 0
        better = "better" if self.difference > 0 else "worse"
        verdict = f"recipe {b} is {better} than recipe {a}" if shown else f"no difference between {a} and {b} is shown"
        seeds = (
            f"{len(self.seeds_a)} and {len(self.seeds_b)} seeds" if not self.paired else f"{len(self.seeds_a)} seeds"
        )
        how = "in pairs of equal seed and images" if self.paired else "unpaired (Welch)"
        return (
            f"Mean {self.split} accuracy over {seeds}: {a} {self.mean_a:.2%}, {b} {self.mean_b:.2%}. The difference is "
            f"{difference:+.2f} points, {LEVEL:.0%} interval {low:+.2f} to {high:+.2f}, {how}: {verdict}."
        )


def compare_runs(a: Sequence[str | Path], b: Sequence[str | Path]) -> RecipeComparison:
    """Compare two recipes by finished runs, which differ within `a` and within `b` only by their seed.

    Runs of the same seed that were evaluated on the same images are compared in pairs, which removes what the seed and
    the images contribute. Otherwise the interval is Welch's, for unequal variances.
    """
    sides = [[read_run(folder) for folder in ([runs] if isinstance(runs, str | Path) else runs)] for runs in (a, b)]
    for name, runs in zip("ab", sides, strict=True):
        _check(name, runs)
    split = "test" if all(run.split == "test" for runs in sides for run in runs) else "val"
    ordered = [sorted(runs, key=lambda run: run.recipe.seed) for runs in sides]
    top1 = [np.array([_top1(run, split) for run in runs]) for runs in ordered]
    estimates = [mean_interval(values.tolist()) for values in top1]
    paired = _paired(ordered[0], ordered[1], split)
    if paired:
        difference = mean_interval((top1[1] - top1[0]).tolist())
        mean, interval = difference.mean, difference.interval
    else:
        mean = estimates[1].mean - estimates[0].mean
        interval = _welch(mean, top1[0], top1[1])
    seeds_a, seeds_b = ([run.recipe.seed for run in runs] for runs in ordered)
    one, two = estimates
    return RecipeComparison(
        split, seeds_a, seeds_b, one.mean, two.mean, one.std, two.std, difference=mean, interval=interval, paired=paired
    )


def _check(name: str, runs: Sequence[RunRecord]) -> None:
    if len(runs) < 2:
        raise UsageError(
            f"{name} has {len(runs)} run: a recipe needs at least 2 seeds; `compare` compares the weights of two runs"
        )
    if unfinished := [run for run in runs if run.result is None]:
        raise UsageError(f"{unfinished[0].folder} is not finished: resume it first")
    settings = [json.dumps({**_comparable(run), "seed": 0}, sort_keys=True) for run in runs]
    for run, found in zip(runs, settings, strict=True):
        if found != settings[0]:
            raise UsageError(
                f"{run.folder} and {runs[0].folder} differ in more than their seed: compare one recipe each"
            )
    seeds = [run.recipe.seed for run in runs]
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"{name} has two runs of the same seed: {sorted(seeds)}; a repeated seed is no new evidence")


def _comparable(run: RunRecord) -> Mapping[str, Any]:
    """Return the settings of a run without those that change only its speed."""
    return {k: v for k, v in run.recipe.to_dict().items() if k not in ("machine", "parallel", "keep", "promise")}


def _top1(run: RunRecord, split: str) -> float:
    assert run.result is not None
    return float(run.result[split]["top1"])


def _paired(a: Sequence[RunRecord], b: Sequence[RunRecord], split: str) -> bool:
    """Return whether both sides have the same seeds, each pair evaluated on the same images."""
    if [run.recipe.seed for run in a] != [run.recipe.seed for run in b]:
        return False
    return all(same_samples(x.predictions(split), y.predictions(split)) for x, y in zip(a, b, strict=True))


def _welch(difference: float, a: np.ndarray, b: np.ndarray) -> Interval:
    """Return Welch's interval of a difference of means, with his degrees of freedom rounded down."""
    errors = [values.var(ddof=1) / len(values) for values in (a, b)]
    total = sum(errors)
    if total == 0:
        return difference, difference
    degrees = total**2 / sum(error**2 / (len(values) - 1) for error, values in zip(errors, (a, b), strict=True))
    half = student_t(max(1, int(degrees))) * math.sqrt(total)
    return float(difference - half), float(difference + half)
