"""The state of a run on disk: written whole or not at all, and read back only if it verifies.

    checkpoints/step-00001234.safetensors   every tensor: weights, average, optimizer
    checkpoints/step-00001234.json          the numbers of the run, and the SHA-256 of the tensors
    checkpoints/best-00001000.safetensors   the weights of the best validation; the numbers name its step and SHA-256

The tensors are written first and the manifest last, each through a temporary file and a rename. A manifest without
its tensors, or with others than it names, is passed over and the one before it is taken.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from vitkit.errors import WorkError
from vitkit.files import sha256, sweep, write_atomic, write_json


def write(folder: Path, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any], keep: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    for manifest in _manifests(folder):  # left by a branch of the run that could not be resumed
        if _step(manifest) > step:
            _remove(manifest)
    name = f"step-{step:08d}"
    write_atomic(folder / f"{name}.safetensors", content)
    write_json(folder / f"{name}.json", {**numbers, "step": step, "sha256": sha256(content)})
    for manifest in _manifests(folder)[keep:]:
        _remove(manifest)


def read_newest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest state that verifies, or None where there is none at all; an error where all are damaged."""
    manifests = _manifests(folder)
    for manifest in manifests:
        try:
            numbers = json.loads(manifest.read_text())
            content = manifest.with_suffix(".safetensors").read_bytes()
        except (OSError, ValueError):
            continue
        if isinstance(numbers, dict) and sha256(content) == numbers.get("sha256"):
            return load(content), numbers
    if manifests:
        raise WorkError(f"none of the {len(manifests)} checkpoints in {folder} is whole: start the run anew")
    return None


def write_best(folder: Path, step: int, weights: Mapping[str, Tensor]) -> str:
    """Keep these weights; returns the hash by which the state names them."""
    folder.mkdir(parents=True, exist_ok=True)
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()})
    write_atomic(folder / f"best-{step:08d}.safetensors", content)
    return sha256(content)


def read_best(folder: Path, step: int, digest: str) -> dict[str, Tensor]:
    path = folder / f"best-{step:08d}.safetensors"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorkError(f"the best weights are gone: cannot read {path} ({error.strerror})") from error
    if sha256(content) != digest:
        raise WorkError(f"{path} is not the file that the run's state names: damaged")
    return load(content)


def forget_other_bests(folder: Path, step: int) -> None:
    """Once a state that names the new best is on the disk, only those are of use that a kept state names.

    The older state may be the one to resume from, should the newest turn out damaged.
    """
    named = {step, *(_best_step(manifest) for manifest in _manifests(folder))}
    for path in folder.glob("best-*.safetensors"):
        if path.stem not in {f"best-{n:08d}" for n in named if n is not None}:
            path.unlink()


def tidy(folder: Path) -> None:
    """Remove what killed runs left half done: temporary files, and tensors whose manifest was never written."""
    sweep(folder)
    for tensors in folder.glob("step-*.safetensors"):
        if not tensors.with_suffix(".json").exists():
            tensors.unlink()


def _best_step(manifest: Path) -> int | None:
    """The step of the best weights that a state names; None where it cannot be read, and so not be resumed from."""
    try:
        return int(json.loads(manifest.read_text())["best"]["step"])
    except (OSError, ValueError, KeyError, TypeError):  # a state from before the first validation names none
        return None


def _manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"), reverse=True)


def _step(manifest: Path) -> int:
    return int(manifest.stem.removeprefix("step-"))


def _remove(manifest: Path) -> None:
    manifest.unlink()
    manifest.with_suffix(".safetensors").unlink(missing_ok=True)


def pack_optimizer(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """The tensors of an optimizer's state under flat names; its rates come from the recipe."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}{index}.{key}": value for index, entry in state.items() for key, value in entry.items()}


def unpack_optimizer(optimizer: torch.optim.Optimizer, prefix: str, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            index, key = name.removeprefix(prefix).split(".", 1)
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
