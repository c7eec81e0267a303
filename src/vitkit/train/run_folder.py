"""The folder of a run, made once and only gone on with when asked.

recipe.json        the resolved recipe            metrics.jsonl   a line per report and validation
data.json          what it is trained on          checkpoints/    the last states, and the best weights
environment.json   versions and hardware          model/          the final model folder
result.json        the outcome
"""

import dataclasses
import json
from pathlib import Path

from vitkit.data.source import Dataset
from vitkit.errors import UsageError
from vitkit.files import write_json
from vitkit.train.environment import describe_environment
from vitkit.train.recipe import Recipe


def check_folder(folder: Path, recipe: Recipe, data: Dataset, resume: bool) -> None:
    """A run is never overwritten, and only gone on with under the same recipe and on the same images."""
    if (folder / "recipe.json").exists():
        if not resume:
            raise UsageError(f"{folder} holds a run already: --resume goes on with it, another --out starts a new one")
        _check_same(recipe, read_recipe(folder), folder)
        if (saved := folder / "data.json").exists() and json.loads(saved.read_text())["sha256"] != data.fingerprint:
            raise UsageError(f"--resume: {data.name} has changed since {folder} was started: begin a new run")


def open_folder(folder: Path, recipe: Recipe, data: Dataset) -> None:
    """Make it, with the resolved recipe in it, unless it is there."""
    if (folder / "recipe.json").exists():
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the run folder {folder}: {error.strerror}; choose another --out") from error
    write_json(folder / "environment.json", describe_environment())
    write_json(folder / "data.json", {"name": data.name, "sha256": data.fingerprint})
    write_json(folder / "recipe.json", recipe.to_dict())


def read_recipe(folder: Path) -> Recipe:
    path = folder / "recipe.json"
    try:
        return Recipe.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _check_same(new: Recipe, old: Recipe, folder: Path) -> None:
    """A resumed run may change how fast it runs and how often it saves, nothing that changes the result."""
    a, b = (dataclasses.replace(r, keep=new.keep, machine=new.machine, promise="").to_dict() for r in (new, old))
    for key in a:
        if json.dumps(a[key]) != json.dumps(b[key]):
            raise UsageError(f"--resume: {key} is {a[key]}, but {folder} was started with {b[key]}: use the same")
