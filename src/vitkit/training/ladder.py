"""kNN → probe → fine-tune: the cheap ways first, side by side, until more work no longer pays.

OUT/ladder.json     the rungs so far          OUT/probe, OUT/finetune   run folders
OUT/model           the best of them, by validation
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
from vitkit.data.progress import progress_bar
from vitkit.errors import UsageError
from vitkit.evaluation import evaluate_predictions
from vitkit.features.knn_eval import evaluate_knn
from vitkit.training import Recipe, get_recipe, train
from vitkit.training.task import open_dataset, suggest_preprocess
from vitkit.weights.load import load_model

ENOUGH = 0.995  # of validation: what is left to gain is less than a small validation split can show
SAME_IMAGES = ("data", "label", "data_dir", "seed", "val_fraction", "corrupt_limit")  # what all rungs have in common
LEAST_MINUTES = 1.0  # for fine-tuning; with less it would be the probe with noise


@dataclass(frozen=True)
class Rung:
    name: str  # knn, probe, finetune
    val: Mapping[str, Any]  # n, top1, top1_interval, nll
    test: Mapping[str, Any] | None
    seconds: float
    core_seconds: float  # what it cost: processor time, of all threads and workers; of the last start, if resumed
    note: str
    run: str | None  # the run folder; kNN has none, for its classifier is the data itself


@dataclass(frozen=True)
class Ladder:
    rungs: tuple[Rung, ...]
    best: str  # the name of the best rung by validation
    model: str | None  # the model folder of the best rung that has one
    stopped: str  # why no further

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def climb(
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
    say: Callable[[Rung], None] = lambda rung: None,
) -> Ladder:
    """Climb as far as it pays within the minutes. `changes` are settings of the fine-tuning recipe; those that decide
    which images are learned from and which are judged by hold for every rung.

    Interrupted, it keeps what is done; with `resume` it goes on from there.
    """
    folder, began = Path(out), time.monotonic()
    asked: dict[str, Any] = dict(data=data, init=init, label=label, data_dir=data_dir, seed=seed)
    tuned = dataclasses.replace(get_recipe("finetune"), **asked).override(changes)
    given = {name: getattr(tuned, name) for name in ("init", *SAME_IMAGES)}
    rungs = _open(folder, given, resume)
    spent = sum(rung.seconds for rung in rungs)
    done = {rung.name for rung in rungs}

    def left() -> float:
        return minutes - (spent + time.monotonic() - began) / 60

    def keep(rung: Rung) -> None:
        rungs.append(rung)
        _write(folder, given, rungs, "")
        say(rung)

    probe = dataclasses.replace(get_recipe("probe"), **given)
    stopped = ""
    if "knn" not in done:
        keep(_nearest(probe, quiet))
    if "probe" not in done:
        keep(_trained("probe", probe, folder, resume, quiet))
    if "finetune" not in done:
        if rungs[-1].val["top1"] >= ENOUGH:
            stopped = (
                f"the probe has {rungs[-1].val['top1']:.2%} of validation: nothing is left that fine-tuning could show"
            )
        elif left() < LEAST_MINUTES:
            stopped = f"{max(left(), 0):.1f} of {minutes:g} minutes are left: too few to fine-tune"
        else:
            recipe = dataclasses.replace(tuned, budget=dataclasses.replace(tuned.budget, minutes=left()))
            recipe = dataclasses.replace(recipe.override(changes), init=str(folder / "probe"))
            keep(_trained("finetune", recipe, folder, resume, quiet, changes))
    return _write(folder, given, rungs, stopped or "the last rung is reached")


def _nearest(recipe: Recipe, quiet: bool) -> Rung:
    began, busy, data = time.monotonic(), _processor_seconds(), open_dataset(recipe)
    model = load_model(recipe.init)
    preprocess = suggest_preprocess(data.splits["train"], recipe, model)
    with progress_bar("features for the nearest neighbours", quiet) as progress:
        given: dict[str, Any] = dict(progress=progress, corrupt_limit=recipe.corrupt_limit)
        found = evaluate_knn(model, data, "val", preprocess, **given)
        test = evaluate_knn(model, data, "test", preprocess, k=found.k, **given) if "test" in data.splits else None
    note = f"k = {found.k}, chosen by leaving one training image out"
    measured = [evaluate_predictions(each.predictions) for each in (found, test) if each]
    val, *rest = [_part(e.to_dict()) for e in measured]
    seconds, cost = round(time.monotonic() - began, 2), round(_processor_seconds() - busy, 2)
    return Rung("knn", val, rest[0] if rest else None, seconds, cost, note, None)


def _trained(name: str, recipe: Recipe, folder: Path, resume: bool, quiet: bool, changes: tuple[str, ...] = ()) -> Rung:
    began, busy = time.monotonic(), _processor_seconds()
    going_on = resume and (folder / name / "recipe.json").is_file()
    if going_on:  # what was left of the minutes is in the recipe it began with
        recipe = Recipe.from_dict(json.loads((folder / name / "recipe.json").read_text()))
        if dataclasses.replace(recipe.override(changes), init=recipe.init) != recipe:
            raise UsageError(f"{folder / name} has begun with other settings: leave out --set, or choose another --out")
    result = train(recipe, folder / name, resume=going_on, quiet=quiet)
    note = f"{result.epochs:.4g} epochs" if result.steps else "frozen features, a linear classifier"
    seconds = result.seconds if going_on else time.monotonic() - began
    test = _part(result.test) if result.test else None
    cost = _processor_seconds() - busy
    return Rung(name, _part(result.val), test, round(seconds, 2), round(cost, 2), note, result.run)


def _processor_seconds() -> float:
    """Of this process and the workers it has ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _part(measured: Mapping[str, Any]) -> dict[str, Any]:
    return {key: measured[key] for key in ("n", "top1", "top1_interval", "nll")}


def _open(folder: Path, given: Mapping[str, Any], resume: bool) -> list[Rung]:
    """The rungs that are done already."""
    path = folder / "ladder.json"
    if (folder / "recipe.json").is_file():
        raise UsageError(f"{folder} holds a run of `vitkit train`, whose model would be lost: choose another --out")
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        return []
    if not resume:
        raise UsageError(f"{folder} holds a ladder already: --resume goes on with it, another --out starts a new one")
    saved = json.loads(path.read_text())
    if saved["given"] != dict(given):
        raise UsageError(f"--resume: {folder} was started with {saved['given']}, not {dict(given)}: use the same")
    return [Rung(**rung) for rung in saved["rungs"]]


def _write(folder: Path, given: Mapping[str, Any], rungs: list[Rung], stopped: str) -> Ladder:
    """The record, and the best model so far in its place. Of equal ones the cheaper."""
    best = max(rungs, key=lambda rung: rung.val["top1"])
    kept = max((rung for rung in rungs if rung.run), key=lambda rung: rung.val["top1"], default=None)
    if kept and kept.run:
        fresh = folder / "model.new"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(Path(kept.run) / "model", fresh)
        shutil.rmtree(folder / "model", ignore_errors=True)
        fresh.rename(folder / "model")
    ladder = Ladder(tuple(rungs), best.name, str(folder / "model") if kept else None, stopped)
    write_json(folder / "ladder.json", {"given": dict(given), **ladder.to_dict()})
    return ladder
