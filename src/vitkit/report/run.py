"""What a run folder holds, whether the run is finished, going on, or was stopped."""

import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitkit.errors import UsageError
from vitkit.evaluation import Evaluation, evaluate_predictions
from vitkit.evaluation.predictions import load_predictions
from vitkit.training import Recipe
from vitkit.training.run_dir import read_recipe


@dataclass(frozen=True)
class Run:
    folder: Path
    recipe: Recipe
    environment: dict[str, Any]
    metrics: tuple[dict[str, Any], ...]  # a line per report and validation, in order
    result: dict[str, Any] | None  # None: not finished

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def model(self) -> str:
        return self.recipe.model or self.recipe.init  # fine-tuned weights bring their own architecture

    @property
    def split(self) -> str:
        """Where the finished model is judged: on test, if there is one."""
        return "test" if self.result and self.result["test"] else "val"

    @cached_property
    def evaluation(self) -> Evaluation | None:
        if self.result is None:
            return None
        return evaluate_predictions(load_predictions(self.folder / f"predictions-{self.split}.safetensors"))

    def last(self, key: str) -> Any:
        """The newest value of a metric; None: there is none yet."""
        return next((line[key] for line in reversed(self.metrics) if key in line), None)

    def rows(self, key: str) -> list[tuple[float, float]]:
        """(epoch, value) wherever a metric was recorded. A value that is not finite has no place in a curve."""
        found = [(m["epoch"], m[key]) for m in self.metrics if "epoch" in m and key in m]
        return [(float(x), float(y)) for x, y in found if y is not None and math.isfinite(y)]


def read_run(folder: str | Path) -> Run:
    path = Path(folder)
    if (path / "ladder.json").is_file():
        rungs = " ".join(str(rung) for rung in (path / "probe", path / "finetune") if (rung / "recipe.json").is_file())
        raise UsageError(f"{path} is a ladder; its rungs are runs: vitkit report {rungs}")
    if not (path / "recipe.json").is_file():
        raise UsageError(f"{path} is not a run folder: there is no recipe.json in it, as `vitkit train --out` writes")
    return Run(
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
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _lines(path: Path) -> tuple[dict[str, Any], ...]:
    """The last one may be half written, by a run that goes on or was killed."""
    found = []
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return tuple(found)
