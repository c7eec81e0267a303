"""Objectives: what a training step minimises. `Supervised` and `Distillation` are two; yours has the same form.

An objective is called as `objective(model, batch)`, with the model and a `TrainingBatch`, and returns the mean loss of
the batch and a dictionary of named numbers, each a mean over the batch. It may have:

    whole_batch            True: the loss relates images to each other, and the batch is never divided.
                           False: the loss is a mean over images and draws no random numbers, so that the cores of a CPU
                           may share a batch. Without it, one core computes a batch, or one micro-batch after the other.
    state_dict, load_state_dict     its state, saved with checkpoints: an `nn.Module` has both
    parameters             those of an `nn.Module` are trained together with the model
    extra_targets(keys)    further targets, (B, M), that are mixed as the labels are: `batch.extra`
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from vitkit.data.rng import SampleKeys
from vitkit.data.training_batch import TrainingBatch
from vitkit.errors import ConfigError
from vitkit.model import ViT
from vitkit.training.distillation import Teacher
from vitkit.training.loss import accuracy, cross_entropy, distillation_loss

Metrics = Mapping[str, Tensor | float]
RESERVED = ("loss", "gradient_norm", "lr", "images_per_s", "epoch", "step", "time", "top1", "top5", "n")


class Objective(Protocol):
    """What `vitkit.train` minimises: a function of model and batch that returns the mean loss and named metrics.

    The attribute `whole_batch` tells whether a batch may be divided: never (True), also among the cores of a CPU
    (False), or only into micro-batches (no such attribute). Parameters of an `nn.Module` are trained with the model,
    and its state is saved with checkpoints. Another object can define `state_dict` and `load_state_dict`.
    """

    def __call__(self, model: Any, batch: TrainingBatch, /) -> tuple[Tensor, Metrics]: ...


@dataclass(frozen=True)
class Supervised:
    """Cross-entropy with the soft targets of the batch: labels with smoothing, mixup and CutMix."""

    class_weights: Tensor | None = None
    whole_batch: ClassVar[bool] = False

    def __call__(self, model: nn.Module, batch: TrainingBatch) -> tuple[Tensor, Metrics]:
        logits = model(batch.images).float()
        loss = cross_entropy(logits, batch.targets, self.class_weights)
        return loss, {"accuracy": accuracy(logits, batch.targets)}


@dataclass(frozen=True)
class Distillation:
    """The label loss and the loss to a teacher's predictions, of the distillation token if the model has one."""

    teacher: Teacher
    class_weights: Tensor | None = None
    whole_batch: ClassVar[bool] = False

    def extra_targets(self, keys: SampleKeys) -> Tensor | None:
        """Return the teacher's targets for the unaugmented images, if they are cached."""
        return self.teacher.cached_targets(keys)

    def __call__(self, model: ViT, batch: TrainingBatch) -> tuple[Tensor, Metrics]:
        taught = self.teacher.targets(batch.images) if batch.extra is None else batch.extra
        logits, distilled = model.forward_heads(batch.images)
        logits, distilled = logits.float(), (logits if distilled is None else distilled).float()
        settings = self.teacher.settings
        loss = distillation_loss(logits, distilled, batch.targets, taught, settings, self.class_weights)
        return loss, {"accuracy": accuracy(logits, batch.targets)}


class ObjectiveModule(nn.Module):
    """Model and objective as one module: batch in, loss and metrics out. DDP and compilation wrap it."""

    def __init__(self, model: nn.Module, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: TrainingBatch) -> tuple[Tensor, Metrics]:
        found = self.objective(self.model, batch)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ConfigError(f"the objective returned {type(found).__name__}: expected a pair (loss, metrics)")
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> "ObjectiveModule":
        """Copy the model, and the objective if it is a module: one that is not has no weights of its own."""
        own = copy.deepcopy(self.objective, memo) if isinstance(self.objective, nn.Module) else self.objective
        return ObjectiveModule(copy.deepcopy(self.model, memo), own)


def is_custom(objective: Objective) -> bool:
    return not isinstance(objective, Supervised | Distillation)


def objective_name(objective: Objective) -> str:
    return getattr(objective, "__qualname__", type(objective).__qualname__)


def needs_whole_batch(objective: Objective) -> bool:
    return bool(getattr(objective, "whole_batch", False))


def cores_may_share(objective: Objective) -> bool:
    """Return whether the objective allows it to divide a batch among threads. Buffers would differ between them."""
    has_buffers = isinstance(objective, nn.Module) and next(objective.buffers(), None) is not None
    return getattr(objective, "whole_batch", None) is False and not has_buffers


def check_division(objective: Objective, micro_batch: int, ranks: int) -> None:
    """Raise if settings would divide a batch that the objective needs as a whole, or its state among processes."""
    name = objective_name(objective)
    if needs_whole_batch(objective) and micro_batch:
        raise ConfigError(
            f"{name} needs the whole batch, but machine.micro_batch={micro_batch} divides it: set it to 0"
        )
    if needs_whole_batch(objective) and ranks > 1:
        raise ConfigError(
            f"{name} needs the whole batch, but {ranks} processes divide it: use one process, or gather the batch in "
            "the objective and remove whole_batch"
        )
    if ranks > 1 and not isinstance(objective, nn.Module) and objective_state(objective):
        raise ConfigError(f"{name} has a state that {ranks} processes would not share: use one process")


def objective_state(objective: Objective | None) -> dict[str, Tensor]:
    """Return the registered state of an objective by name; raise if a value is not a tensor."""
    get_state = getattr(objective, "state_dict", dict)
    state: dict[str, Any] = get_state()
    if wrong := [name for name, value in state.items() if not isinstance(value, Tensor)]:
        kind = type(state[wrong[0]]).__name__
        raise ConfigError(f"state_dict of the objective: {wrong[0]} is a {kind}, checkpoints hold tensors: convert it")
    return dict(state)


def check_metrics(metrics: Metrics) -> None:
    """Raise if an objective's metrics cannot be logged: wrong types, or names that the log uses itself."""
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"the objective returned {type(metrics).__name__} as metrics: expected a dictionary of numbers"
        )
    for name, value in metrics.items():
        if name in RESERVED:
            raise ConfigError(f"the objective has a metric {name!r}, a name that the log uses itself: rename it")
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ConfigError(f"metric {name!r} has shape {tuple(value.shape)}: return its mean over the batch")


def as_tensors(metrics: Metrics, device: torch.device) -> dict[str, Tensor]:
    """Return the metrics as detached float32 scalars."""
    return {
        name: torch.as_tensor(value, dtype=torch.float32, device=device).detach().reshape(())
        for name, value in metrics.items()
    }
