"""The first batch of a run, as the model saw it: a function of the recipe and the data, so it can be made again."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitkit.data.dataset import Split
from vitkit.data.loader import BatchSource, FileSource, InMemorySource, fits_memory, make_source
from vitkit.data.mixup import mixup_cutmix
from vitkit.data.preprocess import Preprocess
from vitkit.data.rng import SampleKeys
from vitkit.model.config import Pair
from vitkit.training import Recipe
from vitkit.training.schedule import image_size
from vitkit.training.task import make_sampler


@dataclass(frozen=True)
class FirstBatch:
    pixels: np.ndarray  # (B, H, W, C) uint8, mixed; rounded to 8 bits, to be looked at
    shares: np.ndarray  # (B, K): how much of each class is in an image
    index: np.ndarray  # (B,) into the training split


def first_batch(recipe: Recipe, train: Split, classes: int, preprocess: Preprocess, patch: Pair) -> FirstBatch:
    """Step 0. `train` holds the images that can be read, `preprocess` is the run's."""
    keys = make_sampler(recipe, train, classes).at(0)
    pixels = _store(recipe, train, preprocess, keys).fetch(
        keys, image_size(0.0, recipe.schedule, preprocess.size, patch)
    )
    labels = torch.nn.functional.one_hot(torch.from_numpy(train.labels[keys.index]), classes).float()
    images, shares = mixup_cutmix(preprocess.normalize(pixels), labels, keys, recipe.augment)
    shown = preprocess.denormalize(images).permute(0, 2, 3, 1).numpy()
    return FirstBatch(shown, shares.numpy(), keys.index)


def _store(recipe: Recipe, train: Split, preprocess: Preprocess, keys: SampleKeys) -> BatchSource:
    """As training holds the images, with no more of them decoded than the batch needs."""
    rows = np.unique(keys.index)
    if fits_memory(train, preprocess):
        store, _, _ = make_source(train.subset(rows), preprocess, recipe.augment, limit=0.0)
        if isinstance(store, InMemorySource):
            return InMemorySource(_spread(store.pixels, rows, len(train)), recipe.augment)
    return FileSource(train, preprocess, recipe.augment)


def _spread(pixels: Tensor, rows: np.ndarray, count: int) -> Tensor:
    """Each at its place among all. Memory that nobody writes to costs nothing."""
    whole = torch.zeros(count, *pixels.shape[1:], dtype=pixels.dtype)
    whole[torch.from_numpy(rows)] = pixels
    return whole
