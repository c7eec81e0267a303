"""Set up a run, in this order: data set → model → task → context (what stays fixed) → state (what training changes)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitkit.atomic import write_json
from vitkit.data.dataset import Dataset, ReadFailure, Split
from vitkit.data.decode_pipeline import CorruptionBudget
from vitkit.data.fingerprint import image_keys
from vitkit.data.inspect import probe_sample, recommend_for, sample_ranges, summarize_ranges
from vitkit.data.loader import BatchLoader, BatchSource, View, make_source, make_view, pixels_of
from vitkit.data.open import Arrays, open_data
from vitkit.data.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess, channel_mean_std
from vitkit.data.progress_bar import progress_bar
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.data.recommended_settings import SMALL_SIDE, balanced_class_weights
from vitkit.data.sampler import PAIR, Sampler, shuffle_windows
from vitkit.data.split import with_val
from vitkit.errors import ConfigError, DataError, UsageError
from vitkit.model import ModelInfo, ViT, create_model
from vitkit.training.autotune import TunedSettings, apply_explicit, chooses_bf16
from vitkit.training.budget import Clock
from vitkit.training.checkpoint import Checkpointer, TrainingState
from vitkit.training.data_parallel import data_parallel_cores
from vitkit.training.distillation import make_teacher
from vitkit.training.distributed import World
from vitkit.training.ema import EMA
from vitkit.training.fsdp import shard_model, uses_sharding
from vitkit.training.init_from import adapt_to_classes, fit_probe_head, needs_probe
from vitkit.training.log import Logger
from vitkit.training.objective import Distillation, Objective, Supervised, check_division, cores_may_share
from vitkit.training.optim import OptimizerFactory, make_optimizers
from vitkit.training.recipe import Recipe
from vitkit.training.schedule import check_sizes
from vitkit.weights.model_dir import CONFIG, ModelDir, read_config_json, to_config_json


@dataclass(frozen=True)
class Task:
    """The data of a run: its splits without unreadable images, and the preprocessing."""

    data: Dataset
    preprocess: Preprocess
    train: Split
    train_source: BatchSource
    val: Split
    val_view: View
    test: Split | None
    skipped: tuple[ReadFailure, ...]

    @property
    def classes(self) -> int:
        return len(self.data.class_names)


def open_dataset(recipe: Recipe, given: Dataset | Arrays | None = None) -> Dataset:
    """Open the given data, or those that the recipe names. Raise if there is nothing to train or validate on."""
    data = (
        with_val(given, recipe.val_fraction, recipe.seed)
        if isinstance(given, Dataset)
        else open_data(
            recipe.data if given is None else given,
            label=recipe.label,
            data_dir=recipe.data_dir or None,
            seed=recipe.seed,
            val_fraction=recipe.val_fraction,
            corrupt_limit=recipe.corrupt_limit,
        )
    )
    if len(data.class_names) < 2:
        raise DataError(f"{data.name} has a single class, {data.class_names[0]!r}: training needs at least two")
    for name in ("train", "val"):
        if name not in data.splits or not len(data.splits[name]):
            raise DataError(f"{data.name} has no images in its {name} split: training needs some")
    return data


def choose_model(recipe: Recipe, data: Dataset) -> Recipe:
    """Return the recipe. If it has neither model nor pretrained weights, add the one that `vitkit inspect` suggests."""
    if recipe.model or recipe.init:
        return recipe
    train = data.splits["train"]
    counts = np.bincount(train.labels, minlength=len(data.class_names))
    return recipe.replace(model=recommend_for(counts, probe_sample(train)).model)


def open_task(recipe: Recipe, data: Dataset, init: ViT | None, quiet: bool = True) -> Task:
    """Check that all images can be read, and load those that fit into memory. Raise if too many are unreadable."""
    limit = 1.0  # per split; the limit of the recipe applies to all splits together, below
    preprocess = suggest_preprocess(data.splits["train"], recipe, init)
    known = ReadabilityCache(recipe.data, preprocess.range)
    with progress_bar("reading train", quiet) as progress:
        source, train, skipped = make_source(data.splits["train"], preprocess, recipe.augment, limit, progress, known)
    with progress_bar("reading val", quiet) as progress:
        view, val, corrupt = make_view(data.splits["val"], preprocess, limit, progress, known)
    skipped, test = skipped + corrupt, data.splits.get("test")
    if test is not None and pixels_of(test) is None:
        with progress_bar("reading test", quiet) as progress:
            test, corrupt = filter_readable(test, preprocess.check_decodable, limit, progress, known)
        skipped = skipped + corrupt
    budget = CorruptionBudget(sum(map(len, data.splits.values())), recipe.corrupt_limit)
    budget.add(*skipped)
    for name, split in {"train": train, "val": val, "test": test}.items():
        if split is not None and not len(split):
            raise DataError(f"{data.name}: no image of its {name} split can be read; the first error: {skipped[0]}")
    return Task(data, preprocess, train, source, val, view, test, tuple(skipped))


def suggest_preprocess(train: Split, recipe: Recipe, init: ViT | None) -> Preprocess:
    """Return the preprocessing of the pretrained weights, or one derived from the images, with the recipe's changes."""
    if init is not None and init.info.preprocess:
        found = init.info.preprocess
    else:
        size = (init or create_model(recipe.model, device="meta", **recipe.config)).config.image_size
        pixels = pixels_of(train)
        if pixels is None:
            found = Preprocess(size=size, mean=IMAGENET_MEAN, std=IMAGENET_STD)
            if max(size) <= SMALL_SIDE:  # small images have no margin to crop
                found = found.replace(crop_fraction=1.0)
        else:
            mean, std = channel_mean_std(pixels)
            found = Preprocess(size=size, channels=len(mean), crop_fraction=1.0, mean=mean, std=std)
    return found.replace(**recipe.preprocess)


def build_model(recipe: Recipe, task: Task, init: ViT | None, given: ViT | None = None) -> ViT:
    """Return a new model with random weights from the seed, or the pretrained one with a classifier for the task.

    A given model is returned as it is. Raise if it does not fit the data.
    """
    size = task.preprocess.size
    if given is not None:
        c = given.config
        if (c.num_classes, c.in_channels) != (task.classes, task.preprocess.channels) or not c.accepts(size):
            raise ConfigError(
                f"the model takes {c.in_channels} channels, patches of {c.patch_size} and has {c.num_classes} classes; "
                f"the data have {task.preprocess.channels} channels, size {size} and {task.classes} classes: create "
                f"the model with in_channels={task.preprocess.channels} and num_classes={task.classes}"
            )
        model = given
    elif init is None:
        derived = {"num_classes": task.classes, "in_channels": task.preprocess.channels, "image_size": size}
        model = create_model(recipe.model, seed=recipe.seed, **{**derived, **recipe.config})
    else:
        widen = recipe.head == "probe"
        model = adapt_to_classes(init, recipe.config, task.data.class_names, size, widen)
    check_sizes(recipe.schedule, size, model.config.patch_size)
    return model.train()


def choose_batch_size(recipe: Recipe, images: int, ranks: int) -> int:
    """Return the recipe's batch size, or a power of two from 16 to 256 that gives about 32 steps per epoch.

    It never exceeds the number of images. Raise if it is too small for the number of processes.
    """
    batch_size = min(images, recipe.batch or max(16, min(256, 2 ** ((images // 32).bit_length() - 1))))
    least = ranks * (PAIR if recipe.augment.mixup or recipe.augment.cutmix else 1)
    if ranks > 1 and batch_size < least:
        raise ConfigError(f"batch={batch_size} is too small for {ranks} processes: use at least {least}")
    return batch_size


def make_sampler(recipe: Recipe, train: Split, classes: int, ranks: int = 1) -> Sampler:
    """Return the sampler that defines the order of the training images."""
    batch_size, repeats = choose_batch_size(recipe, len(train), ranks), recipe.augment.repeats
    weights = class_weights(train.labels, classes).double().numpy()[train.labels] if recipe.balanced_sampling else None
    return Sampler(len(train), batch_size, recipe.seed, repeats, weights, shuffle_windows(train))


def class_weights(labels: np.ndarray, classes: int) -> Tensor:
    return torch.tensor(balanced_class_weights(np.bincount(labels, minlength=classes)), dtype=torch.float32)


def make_model_info(recipe: Recipe, task: Task, init_info: ModelInfo) -> ModelInfo:
    """Return the metadata of the trained model; licence and origin are those of the pretrained weights."""
    counts = {name: len(split) for name, split in (("train", task.train), ("val", task.val))}
    if task.test is not None:
        counts["test"] = len(task.test)
    return init_info.replace(
        class_names=tuple(task.data.class_names),
        preprocess=task.preprocess,
        recipe=recipe.to_dict(),
        data={"name": task.data.name, "images": counts, "fingerprint": task.data.fingerprint},
        image_keys=_image_keys(task),
    )


def _image_keys(task: Task) -> dict[str, np.ndarray]:
    """Return the keys by which `eval` recognises the images of a run; none if files would have to be read for them."""
    hashes = {name: split.known_hashes() for name, split in (("train", task.train), ("val", task.val))}
    return {name: image_keys(found) for name, found in hashes.items() if found is not None}


OnStep = Callable[[int, Mapping[str, float], ViT], object]  # step, metrics, model


@dataclass(frozen=True)
class RunContext:
    """Everything that stays the same during a run."""

    recipe: Recipe
    folder: Path
    world: World
    log: Logger
    task: Task
    loader: BatchLoader
    checkpoints: Checkpointer
    class_weights: Tensor | None
    objective: Objective
    cores: int  # that share a training step
    inputs: Mapping[str, str]  # hashes of what a resumed run must find unchanged
    on_step: OnStep | None = None
    optimizer: OptimizerFactory | None = None

    @property
    def batch_size(self) -> int:
        return self.loader.sampler.batch_size

    def epoch(self, step: int) -> float:
        return round(step * self.batch_size / self.loader.sampler.count, 4)


def make_context(
    recipe: Recipe,
    folder: Path,
    world: World,
    log: Logger,
    task: Task,
    model: ViT,
    teacher: ViT | None,
    objective: Objective | None = None,
    on_step: OnStep | None = None,
    optimizer: OptimizerFactory | None = None,
    init: str = "",
) -> RunContext:
    """Return the context of a run. `init` is the hash of the pretrained weights."""
    for note in task.data.notes:
        log.info(note)
    if not task.train.has_hashes:
        log.info("the images are not hashed (a stream, or too many files): `eval` will not recognise copies of them")
    for failure in task.skipped:
        log.info(f"left out: {failure}")
    if world.is_main and (values := summarize_ranges(sample_ranges(task.train), task.preprocess.range)):
        log.info(f"of a sample of the training images, {values}")
    if assumed := model.info.origin.get("assumed"):
        log.info(f"assumed about {recipe.init}: {'; '.join(assumed)}")
    sampler = make_sampler(recipe, task.train, task.classes, world.size)
    unreadable = CorruptionBudget(len(task.train), recipe.corrupt_limit)  # files that fail only during the run
    parameters = sum(p.numel() for p in model.parameters())
    balanced = recipe.loss.class_weights == "balanced"
    weights = class_weights(task.train.labels, task.classes).to(world.device) if balanced else None
    objective = objective or _make_objective(recipe, task, teacher, weights, world.device)
    check_division(objective, recipe.machine.micro_batch, world.size)
    cores = data_parallel_cores(parameters, world.device.type, world.size)
    return RunContext(
        recipe, folder, world, log, task,
        loader=BatchLoader(task.train_source, task.train.labels, sampler, (world.rank, world.size), unreadable),
        checkpoints=Checkpointer(folder / "checkpoints", world, recipe.keep.last, uses_sharding(recipe, world)),
        class_weights=weights,
        objective=objective,
        cores=cores if cores_may_share(objective) and type(model) is ViT else 1,  # a subclass may draw random numbers
        on_step=on_step,
        optimizer=optimizer,
        inputs={"train": task.train.order_digest(), "val": task.val.order_digest(), "init": init},
    )  # fmt: skip


def _make_objective(
    recipe: Recipe, task: Task, teacher: ViT | None, weights: Tensor | None, device: torch.device
) -> Objective:
    """Return the objective of the recipe: supervised, or distillation if it names a teacher."""
    if teacher is None:
        return Supervised(weights)
    args = task.data.class_names, task.preprocess, task.train, device
    return Distillation(make_teacher(recipe.distill, teacher, *args), weights)


def make_state(context: RunContext, model: ViT, resume: bool) -> TrainingState:
    """Return the state of a new run or, with `resume`, that of the newest intact checkpoint."""
    recipe, world, log = context.recipe, context.world, context.log
    saved = context.checkpoints.find_latest() if resume else None
    config_path = context.checkpoints.folder / CONFIG
    if saved is None:
        _initialize(context, model, config_path)
    elif not _same_architecture(model, read_config_json(config_path)):
        raise UsageError(
            f"{context.folder} was started with another architecture under the name {recipe.model}: resume it with the "
            "version of vitkit that started it"
        )
    if saved is not None:
        _check_inputs(context, saved.numbers.get("inputs", {}))
    tuned = apply_explicit(TunedSettings(**saved.numbers["choice"]), recipe.machine) if saved else TunedSettings()
    model.set_grad_checkpointing(recipe.machine.checkpoint_blocks)
    if uses_sharding(recipe, world):
        shard_model(model, world, tuned.bf16 if saved else chooses_bf16(recipe.machine, world))
    steps = context.loader.sampler.steps(recipe.budget.epochs) if recipe.budget.epochs else 0
    state = TrainingState(
        model,
        make_optimizers(model, recipe.optimizer, context.cores, context.objective, context.optimizer),
        EMA(model) if recipe.optimizer.ema else None,
        Clock(total=steps, minutes=recipe.budget.minutes),
        tuned,
        context.objective,
        inputs=context.inputs,
    )
    if saved:
        state.restore(saved)
        state.tuned = tuned
        log.drop_after(state.clock.step)
        log.info(f"resumed at step {state.clock.step} of {state.clock.total}")
    elif resume:
        log.info(f"no checkpoint in {context.folder}: starting from the beginning")
    return state


def _check_inputs(context: RunContext, saved: Mapping[str, str]) -> None:
    """Raise if the readable images, their order or the pretrained weights have changed since the run was started.

    Checkpoints of earlier versions have no hashes and are not checked.
    """
    changed = [name for name, digest in saved.items() if digest != context.inputs.get(name)]
    if not changed:
        return
    if changed[0] == "init":
        what = f"the pretrained weights or the preprocessing of {context.recipe.init} have changed"
    else:
        skipped = context.task.skipped
        now = f"{len(skipped)} cannot be read now, such as {skipped[0]}" if skipped else "all can be read now"
        what = f"the readable {changed[0]} images of {context.task.data.name} have changed ({now})"
    raise UsageError(f"--resume: {what} since {context.folder} was started: restore them, or start a new run")


def _same_architecture(model: ViT, started: ModelDir) -> bool:
    return started.config == model.config and isinstance(model, started.model_class)


def _initialize(context: RunContext, model: ViT, config_path: Path) -> None:
    """Fit the classifier if the recipe asks for a probe. Write config.json, so that any checkpoint can be loaded."""
    recipe, task, world = context.recipe, context.task, context.world
    if needs_probe(recipe, model):
        world.on_main(
            lambda: fit_probe_head(model, task.train, task.preprocess, recipe.seed, context.class_weights, context.log)
        )
        world.broadcast_tensors(model.state_dict().values())

    def write_config() -> None:
        config_path.parent.mkdir(parents=True, exist_ok=True)
        write_json(config_path, to_config_json(model, make_model_info(recipe, task, model.info)))

    world.on_main(write_config)
