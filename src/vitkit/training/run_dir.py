"""The folder of a run, made once and only gone on with when asked.

recipe.json        the resolved recipe            metrics.jsonl   a line per report and validation
data.json          what it is trained on          checkpoints/    the last states, and the best weights
environment.json   versions and hardware          model/          the final model folder
result.json        the outcome
"""

import dataclasses
import errno
import json
import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from vitkit.atomic import write_json
from vitkit.data.dataset import Dataset
from vitkit.errors import UsageError
from vitkit.training.distributed import job_name
from vitkit.training.environment import describe_environment
from vitkit.training.recipe import Recipe


def check_folder(folder: Path, recipe: Recipe, data: Dataset, resume: bool) -> None:
    """A run is never overwritten, and only gone on with under the same recipe and on the same images."""
    if (folder / "ladder.json").exists():
        raise UsageError(f"{folder} holds a ladder, whose model would be lost: choose another --out")
    if (folder / "recipe.json").exists():
        if not resume:
            raise UsageError(f"{folder} holds a run already: --resume goes on with it, another --out starts a new one")
        _check_same(recipe, read_recipe(folder), folder)
        if (saved := folder / "data.json").exists() and json.loads(saved.read_text())["sha256"] != data.fingerprint:
            raise UsageError(f"--resume: {data.name} has changed since {folder} was started: begin a new run")


def open_folder(folder: Path, recipe: Recipe, data: Dataset) -> None:
    """What the run is goes into it; of a resumed one how it runs may have changed, and lasts."""
    if not (folder / "recipe.json").exists():
        write_json(folder / "environment.json", describe_environment())
        write_json(folder / "data.json", {"name": data.name, "sha256": data.fingerprint})
    write_json(folder / "recipe.json", recipe.to_dict())


def is_ours(folder: Path) -> bool:
    """Was the run begun by the very job that this process belongs to? Then it was started again, and goes on."""
    try:
        return bool(job_name()) and json.loads((folder / "environment.json").read_text()).get("launch") == job_name()
    except (OSError, ValueError, AttributeError):
        return False


def hold(folder: Path, patience: float = 60.0) -> AbstractContextManager[Any]:
    """Make the folder and keep others out of it, until the context is left or this process ends in any way.

    A run whose launcher was killed saves its state and leaves by itself: `patience` is the seconds to wait for it.
    Where the file system has no locks, nobody is kept out.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the run folder {folder}: {error.strerror}; choose another --out") from error
    if os.name != "posix":
        return nullcontext()
    import fcntl

    try:
        file = open(folder / ".lock", "a")  # noqa: SIM115  # open as long as the run
    except OSError as error:
        raise UsageError(f"cannot write into {folder}: {error.strerror}; choose another --out") from error
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
                return file
            if time.monotonic() > until:
                file.close()
                raise UsageError(f"another process trains in {folder}: stop it, or choose another --out") from error
        time.sleep(0.2)


def read_recipe(folder: Path) -> Recipe:
    path = folder / "recipe.json"
    try:
        return Recipe.from_dict(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


def _check_same(new: Recipe, old: Recipe, folder: Path) -> None:
    """A resumed run may change how fast it runs and how often it saves, nothing that changes the result."""
    same: dict[str, Any] = {"keep": new.keep, "machine": new.machine, "parallel": new.parallel, "promise": ""}
    a, b = (json.loads(json.dumps(dataclasses.replace(r, **same).to_dict())) for r in (new, old))
    for key in a:
        if a[key] != b[key]:  # 0 and 0.0 are the same
            raise UsageError(f"--resume: {key} is {a[key]}, but {folder} was started with {b[key]}: use the same")
