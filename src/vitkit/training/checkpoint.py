"""The state of a run on disk: written whole or not at all, and read back only if it verifies.

    checkpoints/step-00001234.safetensors   every tensor: weights, average, optimizer
    checkpoints/step-00001234/              the same where processes hold parts of them: a file by each (`sharded.py`)
    checkpoints/step-00001234.json          the numbers of the run, and the SHA-256 of the tensors, file by file
    checkpoints/best-00001000.safetensors   the weights of the best validation; the numbers name its step and SHA-256

The tensors are written first and the manifest last, each through a temporary file or folder and a rename. A manifest
without its tensors, or with others than it names, is passed over and the one before it is taken.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from vitkit.atomic import remove_stale_temporaries, sha256, write_atomic, write_json
from vitkit.errors import WorkError
from vitkit.training import sharded_checkpoint as sharded
from vitkit.training.distributed import World
from vitkit.training.fsdp import cut

Like = Callable[[str, torch.Size], Tensor]  # room for the tensor of a name and a shape
ALONE = World(0, 1, torch.device("cpu"))


def write(folder: Path, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any], keep: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    forget_later(folder, step)
    write_atomic(folder / f"step-{step:08d}.safetensors", content)
    _write_manifest(folder, step, {**numbers, "sha256": sha256(content)}, keep)


def room(folder: Path, step: int) -> Path:
    """Where the parts of a state are written before it is one."""
    return folder / f".step-{step:08d}.parts"


def make_room(folder: Path, step: int) -> None:
    shutil.rmtree(room(folder, step), ignore_errors=True)
    try:
        room(folder, step).mkdir(parents=True)
    except OSError as error:
        raise WorkError(f"cannot write to {folder}: {error.strerror}; choose another folder") from error


def adopt(parts: Path, step: int, digests: Mapping[str, str], numbers: Mapping[str, Any], keep: int) -> None:
    """Make a state of parts that are all written. One of this step that is there already is the same: it stays."""
    folder = parts.parent
    if missing := [name for name in digests if not (parts / name).is_file()]:
        raise WorkError(f"{parts} lacks {missing[0]}, which was written: all machines have to share the run folder")
    forget_later(folder, step)
    place = folder / f"step-{step:08d}"
    if place.with_suffix(".json").exists():
        shutil.rmtree(parts)
        return
    shutil.rmtree(place, ignore_errors=True)  # without a manifest it is none
    os.replace(parts, place)
    _write_manifest(folder, step, {**numbers, "files": dict(digests)}, keep)


def forget_later(folder: Path, step: int) -> None:
    """What a branch of the run left that could not be resumed."""
    for manifest in _manifests(folder):
        if _step(manifest) > step:
            _remove(manifest)


def _write_manifest(folder: Path, step: int, numbers: Mapping[str, Any], keep: int) -> None:
    write_json(folder / f"step-{step:08d}.json", {**numbers, "step": step})
    for manifest in _manifests(folder)[keep:]:
        _remove(manifest)


@dataclass(frozen=True)
class Saved:
    """A state that verified: its numbers at hand, its tensors when they are asked for."""

    numbers: dict[str, Any]
    place: Path
    content: bytes | None  # of one file; None: `place` is a folder of parts

    def tensors(self, like: Like) -> dict[str, Tensor]:
        """Each laid out as `like` says; parts are read by all processes at once."""
        if self.content is None:
            return sharded.read(self.place, like)
        return {name: cut(tensor, like(name, tensor.shape)) for name, tensor in load(self.content).items()}


def find_newest(folder: Path, world: World = ALONE) -> Saved | None:
    """The newest state that verifies, or None where there is none at all; an error where all are damaged.

    Parts are verified by all processes together, and all take the same state.
    """
    manifests: list[Path] = world.tell(_manifests(folder))
    for manifest in manifests:
        saved = verified(manifest, world)
        if not any(world.any(saved is None)):
            return saved
    if manifests:
        raise WorkError(f"none of the {len(manifests)} checkpoints in {folder} is whole: start the run anew")
    return None


def read_newest(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The same by one process: whole tensors, and the numbers."""
    saved = find_newest(folder)
    return (saved.tensors(whole_room), saved.numbers) if saved else None


def whole_room(name: str, shape: torch.Size) -> Tensor:
    return torch.empty(shape)


def verified(manifest: Path, world: World = ALONE) -> Saved | None:
    """The state that a manifest names, if it is the one on the disk; of parts, those that fall to this process."""
    place, single = manifest.with_suffix(""), manifest.with_suffix(".safetensors")
    try:
        numbers = json.loads(manifest.read_text())
        if "files" in numbers:
            mine = sorted(numbers["files"].items())[world.rank :: world.size]
            whole = all(sha256(place / name) == digest for name, digest in mine)
            return Saved(numbers, place, None) if whole else None
        content = single.read_bytes()
        return Saved(numbers, single, content) if sha256(content) == numbers["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
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
    remove_stale_temporaries(folder)
    for parts in folder.glob(".step-*.parts"):
        shutil.rmtree(parts, ignore_errors=True)
    for tensors in folder.glob("step-*"):
        if not tensors.with_suffix(".json").exists():
            shutil.rmtree(tensors) if tensors.is_dir() else tensors.unlink()


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
    shutil.rmtree(manifest.with_suffix(""), ignore_errors=True)


def pack_optimizer(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """The tensors of an optimizer's state under flat names; its rates come from the recipe."""
    state = optimizer.state_dict()["state"]
    return {f"{prefix}{index}.{key}": value for index, entry in state.items() for key, value in entry.items()}


def unpack_optimizer(optimizer: torch.optim.Optimizer, prefix: str, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    shapes = [p.shape for group in optimizer.param_groups for p in group["params"]]
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            index, key = name.removeprefix(prefix).split(".", 1)
            if int(index) >= len(shapes) or (tensor.ndim and tensor.shape != shapes[int(index)]):
                raise WorkError("the state was saved by a version that updated other parameters: start a new run")
            state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
