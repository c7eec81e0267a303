"""`Recipe`: all settings of a training run. `recipes.py` contains the named recipes."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

from vitkit import config as settings
from vitkit.data.preprocess import Preprocess
from vitkit.data.transforms import Augment
from vitkit.errors import ConfigError
from vitkit.model import ViTConfig


@dataclass(frozen=True)
class Optimizer:
    """Optimizer, learning rates, weight decay, gradient clipping and the moving average of the weights."""

    # adamw; muon for the matrices of blocks and stem, with adamw for the rest; or an optimizer of torch, such as sgd
    name: str = "adamw"
    options: Mapping[str, Any] = field(default_factory=dict)  # arguments of another optimizer, such as momentum
    lr: float = 1e-3
    muon_lr: float = 2e-3  # learning rate of Muon, scaled so that values usual for AdamW fit
    weight_decay: float = 0.05  # on matrices only, not on biases, norms, tokens and positions
    betas: tuple[float, float] = (0.9, 0.99)
    layer_decay: float = 1.0  # learning rate of each layer, as a fraction of the layer above it
    clip: float = 1.0  # maximum gradient norm; 0: no clipping
    ema: float = 0.0  # decay of the moving average of the weights; 0: no average


@dataclass(frozen=True)
class Schedule:
    """All times are fractions of the run, so a recipe fits any number of epochs or minutes."""

    shape: Literal["cosine", "linear", "constant", "wsd"] = "cosine"
    warmup: float = 0.05
    decay: float = 0.2  # wsd: length of the final decay, as a fraction of the run after warm-up
    floor: float = 0.0  # final learning rate, as a fraction of the maximum
    # progressive resolution: (start, image size) pairs; sizes are pixels or, up to 1, fractions of the full size
    sizes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Loss:
    label_smoothing: float = 0.1
    class_weights: Literal["none", "balanced"] = "none"


@dataclass(frozen=True)
class Distill:
    """Knowledge distillation from a teacher model (Hinton et al. 2015; Touvron et al. 2021)."""

    teacher: str = ""  # a model with the same classes; empty: no distillation
    teacher_sha256: str = ""  # hash of its weights, set at the start: a resumed run requires the same teacher
    kind: Literal["soft", "hard"] = "soft"  # learn the teacher's probabilities, or only its top class
    weight: float = 0.5  # of the teacher loss; the label loss has the rest
    temperature: float = 2.0  # soft: divides the logits of teacher and student
    sees: Literal["batch", "original"] = "batch"  # the augmented batch, or every unaugmented image once, cached


@dataclass(frozen=True)
class Budget:
    """How long a run lasts, how often it is validated, and which weights are kept."""

    epochs: float = 20.0
    minutes: float = 0.0  # above 0: plan the run for this time instead of epochs
    early_stop: int = 0  # stop after this many validations without improvement; 0: never
    validate_every: float = 1.0  # in epochs
    choose: Literal["best", "last"] = "best"  # keep the weights of the best validation, or the last ones
    monitor: str = "top1"  # the metric that decides which validation is best: top1, loss, or one of the objective
    goal: Literal["max", "min"] = "max"  # whether a larger or a smaller value of it is better


@dataclass(frozen=True)
class Machine:
    """Settings for speed and memory. They change the result only by rounding. `auto` is decided by the hardware."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 if the processor has its instructions
    compile: Literal["auto", "on", "off"] = "auto"  # auto: for long runs on a GPU
    micro_batch: int = 0  # images per forward and backward within a step; 0: the complete batch
    checkpoint_blocks: bool = False  # recompute activations of blocks in the backward to save memory
    workers: int = 0  # decoding processes; 0: threads
    threads: int = 0  # CPU threads per process, 0: torch's default; the number changes the rounding
    device: str = "auto"


@dataclass(frozen=True)
class Parallel:
    """The memory layout over the processes of a run. It and their number change the result only by rounding."""

    shard: Literal["none", "full"] = "none"  # full: shard weights, gradients and optimizer state over all processes


@dataclass(frozen=True)
class Keep:
    """How often checkpoints are written, and how many are kept."""

    every_minutes: float = 5.0
    last: int = 2


@dataclass(frozen=True)
class Recipe:
    """Every setting of a training run. `override(["optimizer.lr=1e-3"])` returns a changed recipe."""

    expected_result: str = ""  # what a named recipe reached, on which data, in what time
    data: str = ""
    label: str = "label"
    data_dir: str = ""
    val_fraction: float = 0.1  # of the training images, if the data set has no validation split
    balanced_sampling: bool = False
    corrupt_limit: float = 0.01
    model: str = ""  # a model name; empty: chosen by image size and data set size
    config: Mapping[str, Any] = settings.partial_of(ViTConfig)  # changes to the model's configuration
    init: str = ""  # pretrained weights to start from
    head: Literal["zero", "probe"] = "zero"  # new classifier of pretrained weights: zeros, or a linear probe
    batch: int = 0  # images per step over all processes; 0: 16 to 256, by the number of images
    seed: int = 0
    preprocess: Mapping[str, Any] = settings.partial_of(Preprocess)  # changes to the suggested preprocessing
    augment: Augment = field(default_factory=Augment)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    loss: Loss = field(default_factory=Loss)
    objective: str = ""  # name of an objective that was given in Python, set at the start
    distill: Distill = field(default_factory=Distill)
    budget: Budget = field(default_factory=Budget)
    machine: Machine = field(default_factory=Machine)
    parallel: Parallel = field(default_factory=Parallel)
    keep: Keep = field(default_factory=Keep)

    def __post_init__(self) -> None:
        for group in (self, *vars(self).values()):
            if dataclasses.is_dataclass(group):
                settings.check_types(group)
        _check_ranges(self)

    def replace(self, **changes: Any) -> "Recipe":
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        values = settings.to_dict(self)
        return {"promise": values.pop("expected_result"), **values}  # the key in files since the first version

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        return settings.from_dict(cls, {"expected_result" if k == "promise" else k: v for k, v in values.items()})

    def override(self, assignments: Sequence[str]) -> "Recipe":
        """Return the recipe with `key.path=value` changes, as `--set` takes them."""
        return settings.override(self, assignments)


_POSITIVE = (
    "optimizer.lr", "optimizer.muon_lr", "keep.last", "augment.repeats", "budget.validate_every", "distill.temperature",
)  # fmt: skip
_FRACTIONS = (
    "val_fraction", "corrupt_limit", "schedule.warmup", "schedule.decay", "schedule.floor", "augment.erase",
    "loss.label_smoothing", "optimizer.ema", "optimizer.layer_decay", "distill.weight",
)  # fmt: skip
_NOT_NEGATIVE = (
    "batch", "optimizer.weight_decay", "optimizer.clip", "machine.micro_batch", "machine.workers", "machine.threads",
    "budget.minutes", "budget.epochs", "budget.early_stop", "keep.every_minutes",
)  # fmt: skip


def _check_ranges(r: Recipe) -> None:
    for name in _POSITIVE:
        if not 0 < (value := attrgetter(name)(r)) < float("inf"):
            raise ConfigError(f"{name}={value}: must be above 0")
    if not all(0 <= beta < 1 for beta in r.optimizer.betas):
        raise ConfigError(f"optimizer.betas={r.optimizer.betas}: each must be at least 0 and below 1")
    for name in _FRACTIONS:
        if not 0 <= (value := attrgetter(name)(r)) <= 1:
            raise ConfigError(f"{name}={value}: must be between 0 and 1")
    probe_only = r.head == "probe" and r.budget.epochs == 0
    if r.budget.minutes == 0 and not r.budget.epochs > 0 and not probe_only:
        raise ConfigError(f"budget.epochs must be above 0 (got {r.budget.epochs:g}); budget.minutes limits the time")
    if r.budget.early_stop and r.budget.choose == "last":
        raise ConfigError("budget.early_stop needs budget.choose=best: remove one of the two settings")
    for name in _NOT_NEGATIVE:
        if not 0 <= (value := attrgetter(name)(r)) < float("inf"):
            raise ConfigError(f"{name}={value}: must {'not be negative' if value < 0 else 'be finite'}")
