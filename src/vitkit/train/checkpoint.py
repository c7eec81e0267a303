"""The state of a run on disk: written whole or not at all, and read back only if it verifies.

    checkpoints/step-00001234.safetensors   every tensor: weights, average, optimizer
    checkpoints/step-00001234.json          the numbers of the run, and the SHA-256 of the tensors

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
from vitkit.files import sha256, write_atomic, write_json


def write(folder: Path, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any], keep: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    name = f"step-{step:08d}"
    write_atomic(folder / f"{name}.safetensors", content)
    write_json(folder / f"{name}.json", {**numbers, "step": step, "sha256": sha256(content)})
    for manifest in _manifests(folder)[keep:]:
        manifest.unlink()
        manifest.with_suffix(".safetensors").unlink(missing_ok=True)


def read_newest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest state that verifies, or None where there is none at all; an error where all are damaged."""
    manifests = _manifests(folder)
    for manifest in manifests:
        try:
            numbers = json.loads(manifest.read_text())
            content = manifest.with_suffix(".safetensors").read_bytes()
        except (OSError, json.JSONDecodeError):
            continue
        if isinstance(numbers, dict) and sha256(content) == numbers.get("sha256"):
            return load(content), numbers
    if manifests:
        raise WorkError(f"none of the {len(manifests)} checkpoints in {folder} is whole: start the run anew")
    return None


def write_best(folder: Path, weights: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """The weights of the best validation so far, beside the states."""
    folder.mkdir(parents=True, exist_ok=True)
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()})
    write_atomic(folder / "best.safetensors", content)
    write_json(folder / "best.json", {**numbers, "sha256": sha256(content)})


def read_best(folder: Path) -> dict[str, Tensor]:
    numbers = json.loads((folder / "best.json").read_text())
    content = (folder / "best.safetensors").read_bytes()
    if sha256(content) != numbers["sha256"]:
        raise WorkError(f"{folder / 'best.safetensors'} is not the file that best.json names: damaged")
    return load(content)


def _manifests(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*.json"), reverse=True)


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
