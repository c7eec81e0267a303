"""Read a run folder: recipe, environment, metrics and results of a run that is finished, running or stopped."""

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitkit.errors import UsageError
from vitkit.evaluation import Evaluation, Predictions, evaluate_predictions
from vitkit.evaluation.predictions import load_predictions
from vitkit.training import Recipe
from vitkit.training.run_dir import read_recipe


@dataclass(frozen=True)
class RunRecord:
    folder: Path
    recipe: Recipe
    environment: dict[str, Any]
    metrics: tuple[dict[str, Any], ...]  # one per log line, in order
    result: dict[str, Any] | None  # None: not finished

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def model(self) -> str:
        return self.recipe.model or self.recipe.init  # fine-tuned weights bring their own architecture

    @property
    def split(self) -> str:
        """The split on which the finished model was evaluated: test if there is one, otherwise val."""
        return "test" if self.result and self.result["test"] else "val"

    @cached_property
    def evaluation(self) -> Evaluation | None:
        if self.result is None:
            return None
        return evaluate_predictions(self.predictions(self.split))

    def predictions(self, split: str) -> Predictions:
        """Return the saved predictions of a finished run."""
        return load_predictions(self.folder / f"predictions-{split}.safetensors")

    def last(self, key: str) -> Any:
        """Return the latest value of a metric, or None if none was logged."""
        return next((line[key] for line in reversed(self.metrics) if key in line), None)

    def rows(self, key: str) -> list[tuple[float, float]]:
        """Return (epoch, value) of each log line that has the metric; values that are not finite are skipped."""
        found = [(m["epoch"], m[key]) for m in self.metrics if "epoch" in m and key in m]
        return [(float(x), float(y)) for x, y in found if y is not None and math.isfinite(y)]


def read_run(folder: str | Path) -> RunRecord:
    path = Path(folder)
    if (path / "ladder.json").is_file():
        stages = " ".join(str(s) for s in (path / "probe", path / "finetune") if (s / "recipe.json").is_file())
        raise UsageError(f"{path} is the folder of `vitkit ladder`, not of one run: use vitkit report {stages}")
    if not (path / "recipe.json").is_file():
        raise UsageError(f"{path} is not a run folder: it has no recipe.json; name a folder written by `vitkit train`")
    return RunRecord(
        path,
        read_recipe(path),
        environment=_json(path / "environment.json") or {},
        metrics=_lines(path / "metrics.jsonl"),
        result=_json(path / "result.json"),
    )


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _lines(path: Path) -> tuple[dict[str, Any], ...]:
    """Skip lines that are not JSON: a run that is active or was killed may leave the last one incomplete."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError):
            found.append(json.loads(line))
    return tuple(found)
