"""The first training batch of a run, recomputed: it is a function of the recipe and the data."""

from dataclasses import dataclass

import numpy as np
import torch

from vitkit.data.dataset import Split
from vitkit.data.loader import BatchLoader, BatchSource, FileSource, InMemorySource, fits_memory, make_source
from vitkit.data.mixup import mixup_cutmix
from vitkit.data.preprocess import Preprocess
from vitkit.data.rng import SampleKeys
from vitkit.model.config import Pair
from vitkit.training import Recipe
from vitkit.training.schedule import image_size
from vitkit.training.setup import make_sampler


@dataclass(frozen=True)
class FirstBatch:
    pixels: np.ndarray  # (B, H, W, C) uint8, after augmentation and mixing
    shares: np.ndarray  # (B, K): the share of each class in an image
    index: np.ndarray  # (B,) into the training split


def first_batch(recipe: Recipe, train: Split, classes: int, preprocess: Preprocess, patch_size: Pair) -> FirstBatch:
    """Return the batch of step 0. `train` holds the readable images; `preprocess` is the run's."""
    sampler = make_sampler(recipe, train, classes)
    keys = sampler.at(0)
    loader = BatchLoader(_batch_source(recipe, train, preprocess, keys), train.labels, sampler)
    pixels = loader.batch(0, image_size(0.0, recipe.schedule, preprocess.size, patch_size)).images
    labels = torch.nn.functional.one_hot(torch.from_numpy(train.labels[keys.index]), classes).float()
    images, shares = mixup_cutmix(preprocess.normalize(pixels), labels, keys, recipe.augment)
    shown = preprocess.denormalize(images).permute(0, 2, 3, 1).numpy()
    return FirstBatch(shown, shares.numpy(), keys.index)


def _batch_source(recipe: Recipe, train: Split, preprocess: Preprocess, keys: SampleKeys) -> BatchSource:
    """Return the source that training uses; if it is in memory, decode only the images of this batch."""
    rows = np.unique(keys.index)
    if fits_memory(train, preprocess):
        source, _, _ = make_source(train.subset(rows), preprocess, recipe.augment, corrupt_limit=0.0)
        if isinstance(source, InMemorySource):
            pixels = torch.zeros(len(train), *source.pixels.shape[1:], dtype=source.pixels.dtype)  # costs no memory
            pixels[torch.from_numpy(rows)] = source.pixels
            return InMemorySource(pixels, recipe.augment)
    return FileSource(train, preprocess, recipe.augment)
