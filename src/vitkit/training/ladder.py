"""k-NN → linear probe → fine-tuning from the same pretrained weights, until more training no longer pays.

OUT/ladder.json     the stages so far         OUT/probe, OUT/finetune   run folders
OUT/model           the best model by validation accuracy
"""

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitkit.atomic import write_json
from vitkit.data.progress_bar import progress_bar
from vitkit.errors import UsageError
from vitkit.evaluation import evaluate_predictions
from vitkit.features.knn_eval import evaluate_knn
from vitkit.training.recipe import Recipe
from vitkit.training.recipes import get_recipe
from vitkit.training.run_dir import read_recipe
from vitkit.training.setup import open_dataset, suggest_preprocess
from vitkit.training.train import train
from vitkit.weights.load import load_model

ENOUGH = 0.995  # validation accuracy above which a small validation split can show no improvement
SHARED = ("init", "data", "label", "data_dir", "seed", "val_fraction", "corrupt_limit")  # settings of all stages
MIN_MINUTES = 1.0  # for fine-tuning; with less, the result is the probe with noise


@dataclass(frozen=True)
class Stage:
    name: str  # knn, probe, finetune
    val: Mapping[str, Any]  # n, top1, top1_interval, nll
    test: Mapping[str, Any] | None
    seconds: float
    core_seconds: float  # processor time of all threads and workers, since the last start
    note: str
    run: str | None  # the run folder; k-NN has none, because its classifier is the data itself


@dataclass(frozen=True)
class LadderResult:
    stages: tuple[Stage, ...]
    best: str  # name of the best stage by validation accuracy
    model: str | None  # model folder of the best stage that has one
    stopped: str  # why no further stage was run

    def to_dict(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        return {"rungs": values.pop("stages"), **values}


def run_stages(
    data: str,
    init: str,
    out: str | Path,
    *,
    minutes: float = 10.0,
    label: str = "label",
    data_dir: str = "",
    seed: int = 0,
    changes: tuple[str, ...] = (),
    resume: bool = False,
    quiet: bool = False,
    on_stage: Callable[[Stage], None] = lambda stage: None,
) -> LadderResult:
    """Run k-NN, linear probe and fine-tuning, as far as they pay off within `minutes`. Call `on_stage` after each.

    `changes` are settings of the fine-tuning recipe; those that select and split the images apply to all stages. An
    interrupted ladder keeps its finished stages, and continues with `resume`.
    """
    folder, started = Path(out), time.monotonic()
    finetune = get_recipe("finetune").replace(data=data, init=init, label=label, data_dir=data_dir, seed=seed)
    finetune = finetune.override(changes)
    shared = {name: getattr(finetune, name) for name in SHARED}
    stages = _open(folder, shared, resume)
    spent, done = sum(stage.seconds for stage in stages), {stage.name for stage in stages}

    def minutes_left() -> float:
        return minutes - (spent + time.monotonic() - started) / 60

    def finish(stage: Stage) -> None:
        stages.append(stage)
        _write(folder, shared, stages, "")
        on_stage(stage)

    probe, stopped = get_recipe("probe").replace(**shared), ""
    if "knn" not in done:
        finish(_run_knn(probe, quiet))
    if "probe" not in done:
        finish(_run_training("probe", probe, folder, resume, quiet))
    if "finetune" not in done:
        top1, left = stages[-1].val["top1"], minutes_left()
        if top1 >= ENOUGH:
            stopped = f"stopped: the linear probe reaches {top1:.2%} validation accuracy"
        elif left < MIN_MINUTES:
            stopped = f"stopped: {max(left, 0):.1f} of {minutes:g} minutes are left, too few to fine-tune"
        else:
            recipe = finetune.replace(budget=dataclasses.replace(finetune.budget, minutes=left)).override(changes)
            recipe = recipe.replace(init=str(folder / "probe"))
            finish(_run_training("finetune", recipe, folder, resume, quiet, changes))
    return _write(folder, shared, stages, stopped or "all stages are done")


def _run_knn(recipe: Recipe, quiet: bool) -> Stage:
    started, busy, data = time.monotonic(), _processor_seconds(), open_dataset(recipe)
    model = load_model(recipe.init)
    preprocess = suggest_preprocess(data.splits["train"], recipe, model)
    with progress_bar("features for k-NN", quiet) as progress:
        given: dict[str, Any] = dict(progress=progress, corrupt_limit=recipe.corrupt_limit)
        val = evaluate_knn(model, data, "val", preprocess, **given)
        test = evaluate_knn(model, data, "test", preprocess, k=val.k, **given) if "test" in data.splits else None
    measured = [_summary(evaluate_predictions(each.predictions).to_dict()) if each else None for each in (val, test)]
    seconds, cost = round(time.monotonic() - started, 2), round(_processor_seconds() - busy, 2)
    assert measured[0] is not None
    return Stage("knn", measured[0], measured[1], seconds, cost, f"k = {val.k}, by leave-one-out on train", None)


def _run_training(
    name: str, recipe: Recipe, folder: Path, resume: bool, quiet: bool, changes: tuple[str, ...] = ()
) -> Stage:
    started, busy = time.monotonic(), _processor_seconds()
    resume = resume and (folder / name / "recipe.json").is_file()
    if resume:  # its recipe has the minutes that were left when it was started
        recipe = read_recipe(folder / name)
        if recipe.override(changes).replace(init=recipe.init) != recipe:
            raise UsageError(f"{folder / name} was started with other settings: omit --set, or choose another --out")
    result = train(recipe, folder / name, resume=resume, quiet=quiet)
    note = f"{result.epochs:.4g} epochs" if result.steps else "frozen features, linear classifier"
    seconds = result.seconds if resume else time.monotonic() - started
    test = _summary(result.test) if result.test else None
    cost = _processor_seconds() - busy
    return Stage(name, _summary(result.val), test, round(seconds, 2), round(cost, 2), note, result.run)


def _processor_seconds() -> float:
    """Return the processor time of this process and of its finished workers."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _summary(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    return {key: evaluation[key] for key in ("n", "top1", "top1_interval", "nll")}


def _open(folder: Path, shared: Mapping[str, Any], resume: bool) -> list[Stage]:
    """Return the finished stages in the folder. Raise if it may not be written to, or has other settings."""
    path = folder / "ladder.json"
    if (folder / "recipe.json").is_file():
        raise UsageError(
            f"{folder} holds a run of `vitkit train`, whose model would be overwritten: choose another --out"
        )
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        return []
    if not resume:
        raise UsageError(f"{folder} already holds a ladder: continue it with --resume, or choose another --out")
    saved = json.loads(path.read_text(encoding="utf-8"))
    if saved["given"] != dict(shared):
        raise UsageError(f"--resume: {folder} was started with {saved['given']}, not {dict(shared)}: use the same")
    return [Stage(**stage) for stage in saved["rungs"]]


def _write(folder: Path, shared: Mapping[str, Any], stages: list[Stage], stopped: str) -> LadderResult:
    """Write ladder.json and the best model, and return the result. On equal accuracy the cheaper stage wins."""
    best = max(stages, key=lambda stage: stage.val["top1"])
    trained = max((stage for stage in stages if stage.run), key=lambda stage: stage.val["top1"], default=None)
    if trained and trained.run:
        new = folder / "model.new"
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(Path(trained.run) / "model", new)
        shutil.rmtree(folder / "model", ignore_errors=True)
        new.rename(folder / "model")
    result = LadderResult(tuple(stages), best.name, str(folder / "model") if trained else None, stopped)
    write_json(folder / "ladder.json", {"given": dict(shared), **result.to_dict()})
    return result
