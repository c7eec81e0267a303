"""`Recipe`: everything that decides what a training run does. The named ones stand in `recipes.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vitkit import config as settings
from vitkit.data.preprocess import Preprocess
from vitkit.data.transforms import Augment
from vitkit.errors import ConfigError
from vitkit.model import ViTConfig


@dataclass(frozen=True)
class Optimizer:
    name: Literal["adamw", "muon"] = "adamw"  # muon: for the matrices of blocks and stem, adamw for all else
    lr: float = 1e-3
    muon_lr: float = 2e-3  # of muon's matrices; scaled so that rates of AdamW's size fit
    weight_decay: float = 0.05  # on matrices only: not on biases, norms, tokens, positions
    betas: tuple[float, float] = (0.9, 0.99)
    layer_decay: float = 1.0  # the learning rate of each layer, as a share of the one above it
    clip: float = 1.0  # the largest gradient norm; 0: no clipping
    ema: float = 0.0  # decay of the moving average of the weights; 0: none


@dataclass(frozen=True)
class Schedule:
    """Everything in shares of the run, so that a recipe holds for any number of epochs or minutes."""

    shape: Literal["cosine", "linear", "constant", "wsd"] = "cosine"
    warmup: float = 0.05
    decay: float = 0.2  # wsd: the last share of what follows the warm-up, in which the rate falls
    floor: float = 0.0  # the last rate, as a share of the highest
    # progressive resolution: (from this share on, this image size), in pixels or, up to 1, as a share of the full size
    sizes: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Loss:
    label_smoothing: float = 0.1
    class_weights: Literal["none", "balanced"] = "none"


@dataclass(frozen=True)
class Distill:
    """Learn from another model's answers as well (Hinton et al. 2015; Touvron et al. 2021)."""

    teacher: str = ""  # a model that knows the same classes; empty: none
    teacher_sha256: str = ""  # of its weights, filled in at the start: a run goes on with the teacher it began with
    kind: Literal["soft", "hard"] = "soft"  # its probabilities, or only the class that it finds most likely
    weight: float = 0.5  # of the teacher's part of the loss; the labels have the rest
    temperature: float = 2.0  # soft: both sides' logits are divided by it
    sees: Literal["batch", "original"] = "batch"  # the augmented batch; or each image once as it is, and remembered


@dataclass(frozen=True)
class Budget:
    epochs: float = 20.0
    minutes: float = 0.0  # above 0: plan the run for this time instead
    early_stop: int = 0  # stop after this many validations without a better one; 0: never
    validate_every: float = 1.0  # in epochs
    choose: Literal["best", "last"] = "best"  # weights of the best validation; last: what is reported decides nothing


@dataclass(frozen=True)
class Machine:
    """What may change the speed, but the result by no more than rounding."""

    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: the faster in a trial; fp32 where bf16 is emulated
    compile: Literal["auto", "on", "off"] = "auto"  # auto: in long runs; on a CPU only where a trial in bf16 is faster
    micro_batch: int = 0  # images at a time within a step; 0: the whole batch
    checkpoint_blocks: bool = False
    workers: int = 0  # processes that decode; 0: a thread
    threads: int = 0  # of the CPU, per process; 0: what torch takes. Another number, another rounding
    device: str = "auto"


@dataclass(frozen=True)
class Parallel:
    """How the processes of one run share its memory. Nothing but rounding hangs on it, or on their number."""

    shard: Literal["none", "full"] = "none"  # full: weights, gradients and optimizer state are cut over all processes


@dataclass(frozen=True)
class Keep:
    """How often the state is saved, and how many states are kept."""

    every_minutes: float = 5.0
    last: int = 2


@dataclass(frozen=True)
class Recipe:
    promise: str = ""  # what a named recipe reached, where, in what time
    data: str = ""
    label: str = "label"
    data_dir: str = ""
    val_fraction: float = 0.1  # of the training images, where the data set brings no validation split
    balanced_sampling: bool = False
    corrupt_limit: float = 0.01
    model: str = ""  # a name; empty: what suits the images
    config: Mapping[str, Any] = settings.partial_of(ViTConfig)  # changes to the model's own config
    init: str = ""  # start from these weights
    head: Literal["zero", "probe"] = "zero"  # their new classifier: zeros, or fitted to their features first
    batch: int = 0  # images per step, over all processes; 0: 16 to 256, by the number of images
    seed: int = 0
    preprocess: Mapping[str, Any] = settings.partial_of(Preprocess)  # changes to what the data suggests
    augment: Augment = field(default_factory=Augment)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    loss: Loss = field(default_factory=Loss)
    distill: Distill = field(default_factory=Distill)
    budget: Budget = field(default_factory=Budget)
    machine: Machine = field(default_factory=Machine)
    parallel: Parallel = field(default_factory=Parallel)
    keep: Keep = field(default_factory=Keep)

    def __post_init__(self) -> None:
        for part in (
            self,
            self.augment,
            self.optimizer,
            self.schedule,
            self.loss,
            self.distill,
            self.budget,
            self.machine,
            self.parallel,
            self.keep,
        ):
            settings.check_types(part)
        _check_ranges(self)

    def to_dict(self) -> dict[str, Any]:
        return settings.to_dict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        return settings.from_dict(cls, values)

    def override(self, assignments: Sequence[str]) -> "Recipe":
        return settings.override(self, assignments)


def _check_ranges(r: Recipe) -> None:
    positive = {"optimizer.lr": r.optimizer.lr, "optimizer.muon_lr": r.optimizer.muon_lr}
    positive |= {"keep.last": r.keep.last, "augment.repeats": r.augment.repeats}
    positive |= {"budget.validate_every": r.budget.validate_every, "distill.temperature": r.distill.temperature}
    for name, value in positive.items():
        if not 0 < value < float("inf"):
            raise ConfigError(f"{name}={value}: must be above 0")
    if not all(0 <= beta < 1 for beta in r.optimizer.betas):
        raise ConfigError(f"optimizer.betas={r.optimizer.betas}: each lies between 0 and 1, below 1")
    shares = {"val_fraction": r.val_fraction, "corrupt_limit": r.corrupt_limit, "schedule.warmup": r.schedule.warmup}
    shares |= {"schedule.decay": r.schedule.decay, "schedule.floor": r.schedule.floor, "augment.erase": r.augment.erase}
    shares |= {"loss.label_smoothing": r.loss.label_smoothing, "optimizer.ema": r.optimizer.ema}
    shares |= {"optimizer.layer_decay": r.optimizer.layer_decay, "distill.weight": r.distill.weight}
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise ConfigError(f"{name}={value}: a share lies between 0 and 1")
    fits_head = r.head == "probe" and r.budget.epochs == 0  # then no step need follow
    if r.budget.minutes == 0 and not r.budget.epochs > 0 and not fits_head:
        raise ConfigError(f"budget.epochs={r.budget.epochs}: give a number above 0, or minutes")
    if r.budget.early_stop and r.budget.choose == "last":
        raise ConfigError("budget.early_stop chooses by validation, budget.choose=last forbids it: give one of them")
    at_least_zero = {"batch": r.batch, "optimizer.weight_decay": r.optimizer.weight_decay}
    at_least_zero |= {"optimizer.clip": r.optimizer.clip, "machine.micro_batch": r.machine.micro_batch}
    at_least_zero |= {"machine.workers": r.machine.workers, "machine.threads": r.machine.threads}
    at_least_zero |= {"budget.minutes": r.budget.minutes, "budget.epochs": r.budget.epochs}
    at_least_zero |= {"budget.early_stop": r.budget.early_stop, "keep.every_minutes": r.keep.every_minutes}
    for name, value in at_least_zero.items():
        if not 0 <= value < float("inf"):
            raise ConfigError(f"{name}={value}: must {'not be negative' if value < 0 else 'be finite'}")
