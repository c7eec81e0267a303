"""From a recipe to the parts of a run: data, preprocessing, model; and its state, new or restored."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitkit.atomic import write_json
from vitkit.data.dataset import Dataset, Split
from vitkit.data.inspect import probe_sample, recommend_for
from vitkit.data.loader import BatchLoader, BatchSource, View, make_source, make_view, pixels_of
from vitkit.data.open import open_data
from vitkit.data.pipeline import CorruptionBudget
from vitkit.data.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocess, channel_mean_std
from vitkit.data.progress import progress_bar
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.data.recommend import SMALL_SIDE, balanced_class_weights
from vitkit.data.sampler import PAIR, Sampler, shuffle_windows
from vitkit.errors import ConfigError, CorruptImageError, DataError, UsageError
from vitkit.model import ModelInfo, ViT, create_model
from vitkit.training import checkpoint
from vitkit.training import fsdp as sharding
from vitkit.training import optim as optimizer
from vitkit.training.autotune import Choice, as_asked, precisions
from vitkit.training.budget import Clock
from vitkit.training.data_parallel import data_parallel_cores
from vitkit.training.distillation import Teacher, make_teacher
from vitkit.training.distributed import World
from vitkit.training.init_from import adapt, fit_head, needs_head
from vitkit.training.log import Log
from vitkit.training.recipe import Recipe
from vitkit.training.saving import Saver, ShardSaver, WholeSaver
from vitkit.training.schedule import check_sizes
from vitkit.training.state import State
from vitkit.weights.model_dir import CONFIG, read_config_json, to_config_json


@dataclass(frozen=True)
class Task:
    """What is to be learned: the splits without what cannot be read, and how images are seen."""

    data: Dataset
    preprocess: Preprocess
    train: Split
    store: BatchSource
    val: Split
    val_images: View
    test: Split | None
    skipped: tuple[tuple[str, str], ...]  # (name, reason)

    @property
    def classes(self) -> int:
        return len(self.data.class_names)


def open_dataset(recipe: Recipe) -> Dataset:
    data = open_data(
        recipe.data,
        label=recipe.label,
        data_dir=recipe.data_dir or None,
        seed=recipe.seed,
        val_fraction=recipe.val_fraction,
        corrupt_limit=recipe.corrupt_limit,
    )
    if len(data.class_names) < 2:
        raise DataError(f"{data.name} has one class, {data.class_names[0]!r}: there is nothing to tell it from")
    for name in ("train", "val"):
        if name not in data.splits or not len(data.splits[name]):
            raise DataError(f"{data.name} has no images in its {name} split: training needs some")
    return data


def choose_model(recipe: Recipe, data: Dataset) -> Recipe:
    """Where the recipe leaves the model open and no weights are given: what `vitkit inspect` would suggest."""
    if recipe.model or recipe.init:
        return recipe
    train = data.splits["train"]
    counts = np.bincount(train.labels, minlength=len(data.class_names))
    return dataclasses.replace(recipe, model=recommend_for(counts, probe_sample(train)).model)


def open_task(recipe: Recipe, data: Dataset, start: ViT | None, quiet: bool = True) -> Task:
    limit = 1.0  # here; what is unreadable is counted over all splits below
    preprocess, known = suggest_preprocess(data.splits["train"], recipe, start), ReadabilityCache(recipe.data)
    with progress_bar("looking at train", quiet) as progress:
        store, train, skipped = make_source(data.splits["train"], preprocess, recipe.augment, limit, progress, known)
    with progress_bar("looking at val", quiet) as progress:
        val_images, val, bad = make_view(data.splits["val"], preprocess, limit, progress, known)
    skipped, test = skipped + bad, data.splits.get("test")
    if test is not None and pixels_of(test) is None:  # a file that cannot be read must not show only at the end
        with progress_bar("looking at test", quiet) as progress:
            test, bad = filter_readable(test, preprocess.check_decodable, limit, progress, known)
        skipped = skipped + bad
    corrupt = CorruptionBudget(sum(map(len, data.splits.values())), recipe.corrupt_limit)
    corrupt.add(*(CorruptImageError(name, reason) for name, reason in skipped))
    for name, split in {"train": train, "val": val, "test": test}.items():
        if split is not None and not len(split):
            raise DataError(
                f"{data.name}: no image of its {name} split can be read; the first: {': '.join(skipped[0])}"
            )
    return Task(data, preprocess, train, store, val, val_images, test, tuple(skipped))


def suggest_preprocess(train: Split, recipe: Recipe, start: ViT | None) -> Preprocess:
    """That of the weights it starts from; else what the images themselves ask for; then the recipe's changes."""
    if start is not None and start.info.preprocess:
        found = start.info.preprocess
    else:
        size = (start or create_model(recipe.model, device="meta", **recipe.config)).config.image_size
        pixels = pixels_of(train)
        if pixels is None:
            found = Preprocess(size=size, mean=IMAGENET_MEAN, std=IMAGENET_STD)
            if max(size) <= SMALL_SIDE:  # no margin to spare
                found = found.replace(crop_fraction=1.0)
        else:
            mean, std = channel_mean_std(pixels)
            found = Preprocess(size=size, channels=len(mean), crop_fraction=1.0, mean=mean, std=std)
    return found.replace(**recipe.preprocess)


def build_model(recipe: Recipe, task: Task, start: ViT | None) -> ViT:
    """New weights from the seed, or the ones to start from with a classifier for these classes."""
    if start is None:
        seen = task.preprocess
        fitting = {"num_classes": task.classes, "in_channels": seen.channels, "image_size": seen.size}
        model = create_model(recipe.model, seed=recipe.seed, **{**fitting, **recipe.config})
    else:
        fitted = recipe.head == "probe"
        model = adapt(start, recipe.config, task.data.class_names, task.preprocess.size, widen=fitted)
    check_sizes(recipe.schedule, task.preprocess.size, model.config.patch_size)
    return model.train()


def batch_size(recipe: Recipe, images: int, ranks: int) -> int:
    """As the recipe says; or the power of two from 16 to 256 that still makes about 32 steps of an epoch. Never more
    than there are images: a few dozen are then all seen in every step."""
    batch = min(images, recipe.batch or max(16, min(256, 2 ** ((images // 32).bit_length() - 1))))
    least = ranks * (PAIR if recipe.augment.mixup or recipe.augment.cutmix else 1)
    if ranks > 1 and batch < least:
        raise ConfigError(f"batch={batch} is too small for {ranks} processes: use at least {least}")
    return batch


def sample_plan(recipe: Recipe, train: Split, classes: int, ranks: int = 1) -> Sampler:
    """Which sample comes when."""
    batch, repeats = batch_size(recipe, len(train), ranks), recipe.augment.repeats
    weights = class_weights(train.labels, classes).double().numpy()[train.labels] if recipe.balanced_sampling else None
    return Sampler(len(train), batch, recipe.seed, repeats, weights, shuffle_windows(train))


def class_weights(labels: np.ndarray, classes: int) -> torch.Tensor:
    return torch.tensor(balanced_class_weights(np.bincount(labels, minlength=classes)), dtype=torch.float32)


def info(recipe: Recipe, task: Task, before: ModelInfo | None) -> ModelInfo:
    """What travels with the new weights; of those it started from, `before`, the licence and where they came from."""
    counts = {name: len(split) for name, split in (("train", task.train), ("val", task.val))}
    if task.test is not None:
        counts["test"] = len(task.test)
    return (before or ModelInfo()).replace(
        class_names=tuple(task.data.class_names),
        preprocess=task.preprocess,
        recipe=recipe.to_dict(),
        data={"name": task.data.name, "images": counts, "fingerprint": task.data.fingerprint},
    )


@dataclass(frozen=True)
class Parts:
    """What stays the same during a run."""

    recipe: Recipe
    folder: Path
    world: World
    task: Task
    feed: BatchLoader
    log: Log
    saver: Saver
    class_weights: Tensor | None
    teacher: Teacher | None
    cores: int  # that a step is spread over

    @property
    def batch(self) -> int:
        return self.feed.sampler.batch_size

    def epoch(self, step: int) -> float:
        return round(step * self.batch / self.feed.sampler.count, 4)


def prepare(
    recipe: Recipe, folder: Path, world: World, log: Log, task: Task, model: ViT, teacher: ViT | None, resume: bool
) -> tuple[Parts, State]:
    for note in task.data.notes:
        log.say(note)
    for name, reason in task.skipped:
        log.say(f"left out: {name}: {reason}")
    for line in model.info.origin.get("assumed", ()):
        log.say(f"assumed of {recipe.init}: {line}")
    model.set_grad_checkpointing(recipe.machine.checkpoint_blocks)
    plan = sample_plan(recipe, task.train, task.classes, world.size)
    lost = CorruptionBudget(len(task.train), recipe.corrupt_limit)
    weights = class_weights(task.train.labels, task.classes).to(world.device)
    numbers = sum(p.numel() for p in model.parameters())
    states, is_cut = folder / "checkpoints", recipe.parallel.shard == "full" and world.size > 1
    parts = Parts(
        recipe, folder, world, task,
        feed=BatchLoader(task.store, task.train.labels, plan, (world.rank, world.size), lost),
        log=log,
        saver=(ShardSaver if is_cut else WholeSaver)(states, world, recipe.keep.last),
        class_weights=weights if recipe.loss.class_weights == "balanced" else None,
        teacher=_teacher(recipe, task, teacher, world),
        cores=data_parallel_cores(model.config, numbers, world.device.type, world.size),
    )  # fmt: skip
    saved = _find_saved(states, world) if resume else None
    if saved is None and needs_head(recipe, model):
        seen = (task.train, task.preprocess, recipe.seed, parts.class_weights)
        world.first(lambda: fit_head(model, *seen, log))
        world.spread(model.state_dict().values())
    if saved is None:
        world.first(lambda: _describe(model, recipe, task, states))
    elif read_config_json(states / CONFIG)[0] != model.config:
        raise UsageError(
            f"{folder} was begun with another architecture under the name {recipe.model}: go on with it in the version "
            "of vitkit that began it"
        )
    if is_cut:
        sharding.shard(model, world, _chosen(saved, recipe).bf16 if saved else precisions(recipe, world)[0])
    total = plan.steps(recipe.budget.epochs) if recipe.budget.epochs else 0
    clock = Clock(total=total, minutes=recipe.budget.minutes)
    average = optimizer.Average(model) if recipe.optimizer.ema else None
    state = State(model, optimizer.build(model, recipe.optimizer, parts.cores), average, clock, Choice())
    if saved:
        state.restore(saved)
        state.choice = _chosen(saved, recipe)
        log.rewind(state.clock.step)
        log.say(f"resumed at step {state.clock.step} of {state.clock.total}")
    elif resume:
        log.say(f"nothing to resume in {folder}: starting anew")
    return parts, state


def _describe(model: ViT, recipe: Recipe, task: Task, states: Path) -> None:
    """Beside the states: with it one of them can be made a model, whatever becomes of the run."""
    states.mkdir(parents=True, exist_ok=True)
    write_json(states / CONFIG, to_config_json(model.config, info(recipe, task, model.info)))


def _chosen(saved: checkpoint.Saved, recipe: Recipe) -> Choice:
    return as_asked(Choice(**saved.numbers["choice"]), recipe.machine)


def _find_saved(states: Path, world: World) -> checkpoint.Saved | None:
    world.first(lambda: checkpoint.tidy(states))
    saved = checkpoint.find_newest(states, world)
    if saved:
        world.first(lambda: checkpoint.forget_later(states, saved.numbers["step"]))
    return saved


def _teacher(recipe: Recipe, task: Task, model: ViT | None, world: World) -> Teacher | None:
    if model is None:
        return None
    return make_teacher(recipe.distill, model, task.data.class_names, task.preprocess, task.train, world.device)
