"""From a recipe to the parts of a run: data, preprocessing, model."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitkit.data.feed import Store, arrays_of, load, make_store
from vitkit.data.preprocess import Preprocess, channel_moments
from vitkit.data.source import Dataset, Split, open_data
from vitkit.errors import ConfigError, DataError
from vitkit.model import ViT, create_model
from vitkit.train.recipe import Recipe
from vitkit.weights.folder import ModelInfo, load_model

PHOTO_MEAN, PHOTO_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, as most published weights use


@dataclass(frozen=True)
class Task:
    """What is to be learned: the splits without what cannot be read, and how images are seen."""

    data: Dataset
    preprocess: Preprocess
    train: Split
    store: Store
    val: Split
    val_images: Tensor  # (N, C, H, W) uint8
    test: Split | None
    skipped: tuple[tuple[str, str], ...]  # (name, reason)

    @property
    def classes(self) -> int:
        return len(self.data.class_names)


def open_task(recipe: Recipe, start: ViT | None) -> Task:
    data = open_data(
        recipe.data,
        label=recipe.label,
        data_dir=recipe.data_dir or None,
        seed=recipe.seed,
        val_fraction=recipe.val_fraction,
    )
    for name in ("train", "val"):
        if name not in data.splits or not len(data.splits[name]):
            raise DataError(f"{data.name} has no images in its {name} split: training needs some")
    limit = recipe.corrupt_limit
    preprocess = suggest_preprocess(data.splits["train"], recipe, start)
    store, train, bad_train = make_store(data.splits["train"], preprocess, recipe.augment, limit)
    val_images, val, bad_val = load(data.splits["val"], preprocess, limit)
    return Task(data, preprocess, train, store, val, val_images, data.splits.get("test"), (*bad_train, *bad_val))


def suggest_preprocess(train: Split, recipe: Recipe, start: ViT | None) -> Preprocess:
    """That of the weights it starts from; else what the images themselves ask for; then the recipe's changes."""
    if start is not None and start.info and start.info.preprocess:
        found = start.info.preprocess
    else:
        size = create_model(recipe.model, device="meta", **recipe.config).config.image_size
        pixels = arrays_of(train)
        if pixels is None:
            found = Preprocess(size=size, mean=PHOTO_MEAN, std=PHOTO_STD)
        else:
            mean, std = channel_moments(pixels)
            found = Preprocess(size=size, channels=len(mean), crop_fraction=1.0, mean=mean, std=std)
    return found.replace(**recipe.preprocess)


def build_model(recipe: Recipe, task: Task, start: ViT | None) -> ViT:
    """New weights from the seed, or the ones to start from with a classifier for these classes."""
    if start is None:
        changes: dict[str, Any] = {
            "num_classes": task.classes,
            "in_channels": task.preprocess.channels,
            **recipe.config,
        }
        model = create_model(recipe.model, seed=recipe.seed, **changes)
    else:
        model = start
        if recipe.config:
            raise ConfigError("config.* cannot be changed together with --init: the weights bring their own")
        if tuple(start.info.class_names) != tuple(task.data.class_names):
            model.reset_head(task.classes)
    return model


def start_from(recipe: Recipe) -> ViT | None:
    return load_model(recipe.init) if recipe.init else None


def class_weights(labels: np.ndarray, classes: int) -> torch.Tensor:
    """Inverse frequency, with mean 1 over the training images."""
    counts = np.bincount(labels, minlength=classes)
    return torch.tensor(len(labels) / (classes * np.maximum(counts, 1)), dtype=torch.float32)


def info(recipe: Recipe, task: Task) -> ModelInfo:
    counts = {name: len(split) for name, split in (("train", task.train), ("val", task.val))}
    if task.test is not None:
        counts["test"] = len(task.test)
    return ModelInfo(
        class_names=tuple(task.data.class_names),
        preprocess=task.preprocess,
        recipe=dataclasses.asdict(recipe),
        data={"name": task.data.name, "images": counts, "fingerprint": task.data.fingerprint},
    )
