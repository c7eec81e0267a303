"""The folder of a run: checked, locked, and resumed only on request.

recipe.json        the resolved recipe                  metrics.jsonl   metrics, one line per record
data.json          name and fingerprint of the data     checkpoints/    the last checkpoints and the best weights
environment.json   versions and hardware                model/          the final model folder
result.json        the result
"""

import errno
import json
import os
import platform
import shlex
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from vitkit.atomic import write_json
from vitkit.data.dataset import Dataset
from vitkit.errors import UsageError
from vitkit.training.distributed import job_id
from vitkit.training.recipe import Recipe
from vitkit.version import __version__


def check_run_dir(folder: Path, recipe: Recipe, data: Dataset, resume: bool) -> None:
    """Raise if the run would overwrite another one, or resume it with another recipe or on other images."""
    if (folder / "ladder.json").exists():
        raise UsageError(f"{folder} holds a ladder, whose model would be overwritten: choose another folder")
    if (folder / "recipe.json").exists():
        if not resume:
            raise UsageError(
                f"{folder} already holds a run: continue it (--resume; resume=True in Python), or choose another folder"
            )
        _check_same_recipe(recipe, read_recipe(folder), folder)
        if (saved := folder / "data.json").exists() and _read_json(saved)["sha256"] != data.fingerprint:
            raise UsageError(f"cannot resume: {data.name} has changed since {folder} was started: start a new run")


def write_run_info(folder: Path, recipe: Recipe, data: Dataset) -> None:
    """Write recipe.json; for a new run also data.json and environment.json. Machine settings may change on resume."""
    if not (folder / "recipe.json").exists():
        write_json(folder / "environment.json", describe_environment())
        write_json(folder / "data.json", {"name": data.name, "sha256": data.fingerprint})
    write_json(folder / "recipe.json", recipe.to_dict())


def record_choice(folder: Path, choice: str, cores: int) -> None:
    """Add to environment.json what the run has chosen by itself: its precision, and the cores that share a step."""
    path = folder / "environment.json"
    known = _read_json(path) if path.exists() else {}
    write_json(path, {**known, "choice": choice, "cores_per_step": cores})


def is_restart(folder: Path) -> bool:
    """Return True if this torchrun job started the run in the folder: it was restarted, and has to resume the run."""
    try:
        return bool(job_id()) and _read_json(folder / "environment.json").get("launch") == job_id()
    except (OSError, ValueError, AttributeError):
        return False


def lock_run_dir(folder: Path, timeout: float = 60.0) -> AbstractContextManager[Any]:
    """Create and lock the folder. Return a context that unlocks it; the end of the process unlocks it too.

    If another run has the lock, wait up to `timeout` seconds: a run whose launcher was killed saves and exits by
    itself. File systems and platforms that cannot lock are used without a lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the run folder {folder}: {error.strerror}; choose another folder") from error
    if os.name != "posix":
        return nullcontext()
    import fcntl

    try:
        file = open(folder / ".lock", "a", encoding="utf-8")  # noqa: SIM115  # open as long as the run
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another folder") from error
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
                return file
            if time.monotonic() > deadline:
                file.close()
                raise UsageError(f"another process trains in {folder}: stop it, or choose another folder") from error
        time.sleep(0.2)


def read_recipe(folder: Path) -> Recipe:
    path = folder / "recipe.json"
    try:
        return Recipe.from_dict(_read_json(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _check_same_recipe(new: Recipe, old: Recipe, folder: Path) -> None:
    """Raise if a setting differs that affects the result. Speed, memory and checkpoint settings may change."""
    same: dict[str, Any] = {"keep": new.keep, "machine": new.machine, "parallel": new.parallel, "expected_result": ""}
    a, b = (_settings(json.loads(json.dumps(recipe.replace(**same).to_dict()))) for recipe in (new, old))
    for key in a | b:
        if a.get(key) != b.get(key):  # 0 equals 0.0
            raise UsageError(
                f"cannot resume: {key} is {a.get(key)}, but {folder} was started with {b.get(key)}: use the same"
            )


def _settings(values: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return nested settings as a flat dictionary by full path, such as `optimizer.lr`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _settings(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return flat


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def describe_environment() -> dict[str, Any]:
    """Return the versions and the hardware that a result depends on, besides the recipe."""
    packages = ("torch", "numpy", "pillow", "einops")
    return {
        "vitkit": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in packages if (found := package_version(name))},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": shlex.join(sys.argv),
        "launch": job_id(),
    }


def package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
