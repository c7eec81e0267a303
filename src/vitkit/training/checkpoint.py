"""Checkpoints of a run: written completely or not at all, and loaded only if their hashes match.

    checkpoints/step-00001234.safetensors   all tensors: weights, EMA, optimizer state
    checkpoints/step-00001234/              the same for a sharded model: one file per process (`sharded_checkpoint.py`)
    checkpoints/step-00001234.json          the manifest: the numbers of the state, and the SHA-256 of every file
    checkpoints/best-00001000.safetensors   the weights of the best validation; the manifest has their step and SHA-256

The tensors are written first and the manifest last, each to a temporary path that is then renamed. A checkpoint whose
files are missing or do not match its manifest is skipped, and the one before it is used.
"""

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load, save
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from vitkit.atomic import remove_stale_temporaries, sha256, write_atomic, write_json
from vitkit.errors import WorkError
from vitkit.model import ViT, create_model
from vitkit.training.autotune import TunedSettings
from vitkit.training.budget import Clock
from vitkit.training.distributed import World
from vitkit.training.ema import EMA
from vitkit.training.fsdp import gather_on_main, shard_like
from vitkit.training.muon import Muon
from vitkit.training.objective import Objective, objective_state
from vitkit.training.sharded_checkpoint import EmptyLike, copy_to_cpu, read_shards, write_shards
from vitkit.weights.model_dir import CONFIG, find_model_dir, read_config_json, save_model

_COUNTS = ("best", "since_best", "validated_at", "bad_steps", "bad_in_a_row")
_SINGLE = World(0, 1, torch.device("cpu"))


@dataclass
class TrainingState:
    """The state of a run that checkpoints save: tensors by name, and numbers as JSON."""

    model: ViT
    optimizers: list[torch.optim.Optimizer]
    ema: EMA | None
    clock: Clock
    tuned: TunedSettings
    objective: Objective | None = None  # its registered state is saved
    best: dict[str, Any] = field(default_factory=dict)  # step and metrics of the best validation
    since_best: int = 0  # validations since then
    validated_at: int = -1  # step of the last validation
    bad_steps: int = 0  # skipped updates in total
    bad_in_a_row: int = 0
    inputs: Mapping[str, str] = field(default_factory=dict)  # hashes of what a resumed run must find unchanged

    def tensors(self) -> dict[str, Tensor]:
        named = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self.ema:
            named |= {f"average.{k}": v for k, v in self.ema.state_dict().items()}
        for i, optimizer in enumerate(self.optimizers):
            named |= optimizer_tensors(optimizer, f"optimizer.{i}.")
        return named | {f"objective.{k}": v for k, v in objective_state(self.objective).items()}

    def numbers(self) -> dict[str, Any]:
        counts = {k: getattr(self, k) for k in _COUNTS}
        optimizers = {str(i): found for i, each in enumerate(self.optimizers) if (found := optimizer_numbers(each))}
        choice, inputs = dataclasses.asdict(self.tuned), dict(self.inputs)
        numbers = {"clock": self.clock.to_dict(), "choice": choice, "inputs": inputs, **counts}
        return numbers | ({"optimizers": optimizers} if optimizers else {})

    def restore(self, saved: "SavedCheckpoint") -> None:
        tensors, numbers = saved.tensors(self._empty_like()), saved.numbers
        self.model.load_state_dict(_strip_prefix("model.", tensors))
        if self.ema:
            self.ema.load_state_dict(_strip_prefix("average.", tensors))
        for i, optimizer in enumerate(self.optimizers):
            found = numbers.get("optimizers", {}).get(str(i), {})
            load_optimizer_tensors(optimizer, f"optimizer.{i}.", tensors, found)
        if state := _strip_prefix("objective.", tensors):
            self.objective.load_state_dict(state)  # type: ignore[union-attr]  # only an objective with a state has saved one
        self.clock, self.tuned = Clock(**numbers["clock"]), TunedSettings(**numbers["choice"])
        for key in _COUNTS:
            setattr(self, key, numbers.get(key, getattr(self, key)))

    def _empty_like(self) -> EmptyLike:
        """Return a function (name, shape) → empty tensor, sharded like the parameter that the name belongs to."""
        parameters = {f"{kind}.{k}": v for kind in ("model", "average") for k, v in self.model.state_dict().items()}
        for i, optimizer in enumerate(self.optimizers):
            listed = (p for group in optimizer.param_groups for p in group["params"])
            parameters |= {f"optimizer.{i}.{j}": parameter for j, parameter in enumerate(listed)}

        def empty_like(name: str, shape: torch.Size) -> Tensor:
            like = parameters.get(name, parameters.get(name.rpartition(".")[0]))
            return torch.empty(shape) if like is None or like.shape != shape else torch.empty_like(like)

        return empty_like


def _strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def optimizer_tensors(optimizer: torch.optim.Optimizer, prefix: str) -> dict[str, Tensor]:
    """Return the tensors of an optimizer's state, by flat names. Hyperparameters are left out: the recipe has them."""
    state = optimizer.state_dict()["state"]
    return {
        f"{prefix}{index}.{key}": value
        for index, entry in state.items()
        for key, value in entry.items()
        if isinstance(value, Tensor)
    }


def optimizer_numbers(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the numbers of an optimizer's state and groups; nothing for AdamW and Muon, whose state is all tensors."""
    if isinstance(optimizer, torch.optim.AdamW | Muon):
        return {}
    saved = optimizer.state_dict()

    def numbers(values: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in values.items() if v is None or isinstance(v, bool | int | float)}

    entries = {str(index): numbers(entry) for index, entry in saved["state"].items()}
    return {"groups": [numbers(group) for group in saved["param_groups"]], "state": entries}


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer,
    prefix: str,
    tensors: Mapping[str, Tensor],
    numbers: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    state: dict[int, dict[str, Any]] = {int(index): dict(e) for index, e in numbers.get("state", {}).items()}
    shapes = [p.shape for group in optimizer.param_groups for p in group["params"]]
    for name, tensor in _strip_prefix(prefix, tensors).items():
        index, key = name.split(".", 1)
        if int(index) >= len(shapes) or not _fits(tensor.shape, shapes[int(index)]):
            raise WorkError(
                "the checkpoint has optimizer state of other parameters (another version?): start a new run"
            )
        state.setdefault(int(index), {})[key] = tensor
    groups = optimizer.state_dict()["param_groups"]
    groups = [group | found for group, found in zip(groups, numbers.get("groups", [{}] * len(groups)), strict=True)]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _fits(shape: torch.Size, parameter: torch.Size) -> bool:
    """Return whether the shape is that of the parameter, with axes of length 1 for a mean over them, or a number."""
    return not shape or (
        len(shape) == len(parameter) and all(a in (1, b) for a, b in zip(shape, parameter, strict=True))
    )


class Checkpointer:
    """Saves and finds the checkpoints of a run. All processes call its methods at the same step.

    The main process writes a replicated model before training continues. Each process copies its shards of a sharded
    model and continues, while a thread writes and commits the copies. One save runs at a time.
    """

    def __init__(self, folder: Path, world: World, keep: int, sharded: bool) -> None:
        self.folder, self.world, self.keep, self.sharded = folder, world, keep, sharded
        self.pending: Future[None] | None = None
        if sharded:  # the threads need their own group: in one group, messages of saves and steps could be mixed up
            self.group = dist.new_group(backend="gloo")
            self.thread = ThreadPoolExecutor(1, thread_name_prefix="save")

    def save(self, state: TrainingState) -> None:
        self.flush(state)
        step, tensors, numbers = state.clock.step, state.tensors(), state.numbers()
        if self.sharded:
            self.world.on_main(lambda: create_staging(self.folder, step))
            self.pending = self.thread.submit(self._write_shards, step, copy_to_cpu(tensors), numbers)
        elif self.world.is_main:
            write_checkpoint(self.folder, step, tensors, numbers, self.keep)

    def flush(self, state: TrainingState) -> None:
        """Wait until the pending save is on disk, then remove best weights that no checkpoint refers to."""
        pending, self.pending = self.pending, None
        if pending:
            pending.result()
        if self.world.is_main and state.best:
            remove_stale_best(self.folder, state.best["step"])

    def _write_shards(self, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        staging = staging_dir(self.folder, step)
        try:
            digests = write_shards(staging, tensors, self.group)
        except (OSError, CheckpointException) as error:
            raise WorkError(f"cannot write {staging}: {error}; free space or choose another folder") from error
        if self.world.is_main:
            commit(staging, step, digests, numbers, self.keep)

    def find_latest(self) -> "SavedCheckpoint | None":
        """Return the newest intact checkpoint, or None. Remove newer ones, which are damaged, and incomplete ones."""
        self.world.on_main(lambda: remove_incomplete(self.folder))
        saved = find_latest(self.folder, self.world)
        if saved:
            self.world.on_main(lambda: remove_newer(self.folder, saved.numbers["step"]))
        return saved

    def save_best(self, state: TrainingState) -> None:
        """Write the weights of the model as the best ones, and store their SHA-256 in `state.best`."""
        weights = gather_on_main(state.model.state_dict(), self.world)
        if self.world.is_main:
            state.best["sha256"] = write_best(self.folder, state.best["step"], weights)


def write_checkpoint(
    folder: Path, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any], keep: int
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = _to_bytes(tensors)
    remove_newer(folder, step)
    write_atomic(folder / f"step-{step:08d}.safetensors", content)
    _write_manifest(folder, step, {**numbers, "sha256": sha256(content)}, keep)


def staging_dir(folder: Path, step: int) -> Path:
    """Return the folder that shards are written to before the checkpoint is committed."""
    return folder / f".step-{step:08d}.parts"


def create_staging(folder: Path, step: int) -> None:
    shutil.rmtree(staging_dir(folder, step), ignore_errors=True)
    try:
        staging_dir(folder, step).mkdir(parents=True)
    except OSError as error:
        raise WorkError(f"cannot write to {folder}: {error.strerror}; choose another folder") from error


def commit(staging: Path, step: int, digests: Mapping[str, str], numbers: Mapping[str, Any], keep: int) -> None:
    """Turn the staged shards of all processes into a checkpoint. Keep an existing one of this step: it is identical."""
    folder = staging.parent
    if missing := [name for name in digests if not (staging / name).is_file()]:
        raise WorkError(f"{staging} lacks {missing[0]}, which was written: all machines must share the run folder")
    remove_newer(folder, step)
    target = folder / f"step-{step:08d}"
    if target.with_suffix(".json").exists():
        shutil.rmtree(staging)
        return
    shutil.rmtree(target, ignore_errors=True)  # without a manifest it is no checkpoint
    os.replace(staging, target)
    _write_manifest(folder, step, {**numbers, "files": dict(digests)}, keep)


def remove_newer(folder: Path, step: int) -> None:
    """Remove the checkpoints after `step`, from which the run continues. They are damaged or will be written anew."""
    for manifest in _manifests(folder):
        if int(manifest.stem.removeprefix("step-")) > step:
            _remove(manifest)


def _write_manifest(folder: Path, step: int, numbers: Mapping[str, Any], keep: int) -> None:
    write_json(folder / f"step-{step:08d}.json", {**numbers, "step": step})
    for manifest in _manifests(folder)[keep:]:
        _remove(manifest)


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint whose hashes were verified. `tensors` decodes it."""

    numbers: dict[str, Any]
    path: Path
    content: bytes | None  # of a single file; None: `path` is a folder of shards

    def tensors(self, empty_like: EmptyLike = lambda name, shape: torch.empty(shape)) -> dict[str, Tensor]:
        """Return the tensors by name, each sharded like the one that `empty_like` makes: by default full tensors."""
        if self.content is None:
            return read_shards(self.path, empty_like)
        return {name: shard_like(tensor, empty_like(name, tensor.shape)) for name, tensor in load(self.content).items()}


def find_latest(folder: Path, world: World = _SINGLE) -> SavedCheckpoint | None:
    """Return the newest intact checkpoint, or None if there is none; raise if all are damaged.

    Every process verifies a part of the shards, and all return the same checkpoint.
    """
    manifests: list[Path] = world.broadcast_object(_manifests(folder))
    for manifest in manifests:
        saved = open_verified(manifest, world)
        if not any(world.any(saved is None)):
            return saved
    if manifests:
        raise WorkError(f"all checkpoints in {folder} are damaged ({len(manifests)}): start a new run")
    return None


def open_verified(manifest: Path, world: World = _SINGLE) -> SavedCheckpoint | None:
    """Return the checkpoint of a manifest, or None if it is damaged. Each process verifies a part of the shards."""
    target, single = manifest.with_suffix(""), manifest.with_suffix(".safetensors")
    try:
        numbers = json.loads(manifest.read_text(encoding="utf-8"))
        if "files" in numbers:
            own = sorted(numbers["files"].items())[world.rank :: world.size]
            intact = all(sha256(target / name) == digest for name, digest in own)
            return SavedCheckpoint(numbers, target, None) if intact else None
        content = single.read_bytes()
        return SavedCheckpoint(numbers, single, content) if sha256(content) == numbers["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_best(folder: Path, step: int, weights: Mapping[str, Tensor]) -> str:
    """Write the weights of the best validation. Return their SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    content = _to_bytes(weights)
    write_atomic(folder / f"best-{step:08d}.safetensors", content)
    return sha256(content)


def read_best(folder: Path, step: int, digest: str) -> dict[str, Tensor]:
    path = folder / f"best-{step:08d}.safetensors"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WorkError(f"the best weights are missing: cannot read {path} ({error.strerror})") from error
    if sha256(content) != digest:
        raise WorkError(f"{path} is damaged: its SHA-256 differs from the one in the checkpoint")
    return load(content)


def remove_stale_best(folder: Path, step: int) -> None:
    """Remove all best weights except those of `step` and those that a checkpoint refers to."""
    used = {step, *(_best_step(manifest) for manifest in _manifests(folder))}
    for path in folder.glob("best-*.safetensors"):
        if path.stem not in {f"best-{n:08d}" for n in used if n is not None}:
            path.unlink()


def remove_incomplete(folder: Path) -> None:
    """Remove incomplete checkpoints of killed runs: temporary files, staged shards, tensors without a manifest."""
    remove_stale_temporaries(folder)
    for staging in folder.glob(".step-*.parts"):
        shutil.rmtree(staging, ignore_errors=True)
    for tensors in folder.glob("step-*"):
        if not tensors.with_suffix(".json").exists():
            shutil.rmtree(tensors) if tensors.is_dir() else tensors.unlink()


def _best_step(manifest: Path) -> int | None:
    """Return the step of the best weights that a checkpoint refers to, or None if it has none or is unreadable."""
    try:
        return int(json.loads(manifest.read_text(encoding="utf-8"))["best"]["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def _manifests(folder: Path) -> list[Path]:
    """Return the paths of all manifests, newest first."""
    return sorted(folder.glob("step-*.json"), reverse=True)


def _remove(manifest: Path) -> None:
    manifest.unlink()
    manifest.with_suffix(".safetensors").unlink(missing_ok=True)
    shutil.rmtree(manifest.with_suffix(""), ignore_errors=True)


@contextmanager
def as_model_dir(source: str) -> Iterator[str]:
    """Yield a temporary model folder with the weights of an unfinished run or a checkpoint, else `source` unchanged.

    A run gives the weights of its best validation so far. A checkpoint, `RUN/checkpoints/step-00001234` with or without
    a suffix, gives the EMA if there is one, else the weights.
    """
    weights, folder = _find_weights(Path(source))
    if weights is None:
        yield source
        return
    run = read_config_json(folder / CONFIG)
    model = create_model(run.config, device="meta", model_class=run.model_class)
    model.load_state_dict(weights, assign=True)
    with tempfile.TemporaryDirectory() as target:
        yield str(save_model(model, target, run.info))


def _find_weights(source: Path) -> tuple[dict[str, Tensor] | None, Path]:
    """Return the weights, or None if `source` is neither a run nor a checkpoint, and the checkpoint folder."""
    folder = source / "checkpoints"
    if (folder / CONFIG).is_file() and find_model_dir(source) is None:
        saved = find_latest(folder)
        if saved is None:
            raise WorkError(f"{source} has no checkpoint yet: train for longer")
        best = saved.numbers["best"]
        return read_best(folder, best["step"], best["sha256"]) if best else _weights(saved), folder
    if source.name.startswith("step-") and (source.parent / CONFIG).is_file():
        saved = open_verified(source.with_suffix(".json"))
        if saved is None:
            raise WorkError(f"{source} is damaged or incomplete: its files do not match its manifest")
        return _weights(saved), source.parent
    return None, folder


def _weights(saved: SavedCheckpoint) -> dict[str, Tensor]:
    tensors = saved.tensors()
    return _strip_prefix("average.", tensors) or _strip_prefix("model.", tensors)
