"""Loaders for a training loop of your own: `make_loader` yields the batches of `vitkit.train`, epoch by epoch."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from vitkit.data.dataset import Split
from vitkit.data.decode_pipeline import CORRUPT_LIMIT, CorruptionBudget
from vitkit.data.loader import BatchLoader, View, make_source, make_view
from vitkit.data.preprocess import Preprocess
from vitkit.data.rng import SampleKeys
from vitkit.data.sampler import Sampler, shuffle_windows
from vitkit.data.training_batch import TrainingBatch, prepare_batch, soft_targets
from vitkit.data.transforms import Augment
from vitkit.errors import InputError


@dataclass
class EpochLoader:
    """Yields the batches of one epoch per `for` loop. `epoch` is the next one; set it to continue a loop.

    Epochs follow each other without a gap, as in `vitkit.train`: a batch may begin in one epoch and end in the next.
    So every batch is full, and every image comes once per epoch.
    """

    loader: BatchLoader
    preprocess: Preprocess
    augment: Augment
    classes: int
    label_smoothing: float = 0.0
    workers: int = 0
    epoch: int = 0

    def __len__(self) -> int:
        first, end = self._steps()
        return end - first

    def __iter__(self) -> Iterator[TrainingBatch]:
        first, end = self._steps()
        size = self.preprocess.size
        with closing(self.loader.stream(first, lambda step: size, self.workers)) as batches:
            for batch in islice(batches, end - first):
                yield prepare_batch(batch, self.preprocess, self.classes, self.augment, self.label_smoothing)
        self.epoch += 1

    def _steps(self) -> tuple[int, int]:
        """Return the first step of the next epoch, and the first after it."""
        sampler = self.loader.sampler
        first, end = (math.ceil(epoch * sampler.count / sampler.batch_size) for epoch in (self.epoch, self.epoch + 1))
        return first, end


@dataclass(frozen=True)
class PlainLoader:
    """Yields all images of a split in order, without augmentation. The last batch may be smaller."""

    view: View
    labels: np.ndarray
    preprocess: Preprocess
    batch_size: int
    classes: int

    def __len__(self) -> int:
        return -(-len(self.labels) // self.batch_size)

    def __iter__(self) -> Iterator[TrainingBatch]:
        for number, pixels in enumerate(self.view.batches(self.batch_size)):
            index = np.arange(len(pixels)) + number * self.batch_size
            labels, zeros = torch.from_numpy(self.labels[index]), np.zeros_like(index)
            images, targets = self.preprocess.normalize(pixels), soft_targets(labels, self.classes, 0.0)
            yield TrainingBatch(images, labels, targets, SampleKeys(0, zeros, index, zeros))


def make_loader(
    split: Split,
    preprocess: Preprocess,
    augment: Augment | None = None,
    batch_size: int = 64,
    seed: int = 0,
    workers: int = 0,
    *,
    num_classes: int | None = None,
    label_smoothing: float = 0.0,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> EpochLoader | PlainLoader:
    """Return an iterable of batches with a length: `for batch in loader` goes through one epoch.

    A batch has `images`, normalised, `labels`, and `targets`, the soft labels after mixup. With `augment`, batches are
    shuffled and augmented, and they are those of `vitkit.train` with this seed. Without it, all images come in order.
    `workers` are decoding processes; 0 means threads. `num_classes` is by default the largest label plus one.
    Unreadable images are left out; above the fraction `corrupt_limit` they are an error.
    """
    if not isinstance(split, Split):
        raise InputError(f"make_loader takes a split, not {type(split).__name__}: give data.splits['train']")
    if batch_size < 1 or not len(split):
        raise InputError(f"batch_size={batch_size} and {len(split)} images: a loader needs at least 1 of both")
    classes = num_classes or int(split.labels.max()) + 1
    if augment is None:
        view, readable, _ = make_view(split, preprocess, corrupt_limit)
        return PlainLoader(view, readable.labels, preprocess, batch_size, classes)
    source, readable, _ = make_source(split, preprocess, augment, corrupt_limit)
    sampler = Sampler(
        len(readable), min(batch_size, len(readable)), seed, augment.repeats, windows=shuffle_windows(readable)
    )
    budget = CorruptionBudget(len(readable), corrupt_limit)
    loader = BatchLoader(source, readable.labels, sampler, budget=budget)
    return EpochLoader(loader, preprocess, augment, classes, label_smoothing, workers)


class SplitDataset(TorchDataset[tuple[Tensor, int]]):
    """A split as a `torch.utils.data.Dataset` of normalised images and labels, for torch's own `DataLoader`."""

    def __init__(self, split: Split, preprocess: Preprocess) -> None:
        self.split, self.preprocess = split, preprocess

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = self.preprocess(self.split.images[index], self.split.images.name(index))
        return self.preprocess.normalize(pixels), int(self.split.labels[index])
