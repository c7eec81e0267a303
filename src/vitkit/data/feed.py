"""Step → a batch of training images: looked up in memory, or decoded as it is needed.

Images of one size that fit in memory are decoded once and augmented as batches. Larger ones are decoded anew each time,
since a random-resized crop wants the original pixels; Pillow cuts and resizes them in one go. Either way a batch is a
pure function of its step, so worker processes change nothing but the speed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitkit.data.augment import Augment, augment, crop_box, flips
from vitkit.data.decode import decode
from vitkit.data.draws import Picks
from vitkit.data.loader import Plan
from vitkit.data.preprocess import Preprocess
from vitkit.data.source import Arrays, Split, Subset, read_all, usable

MEMORY = 4 * 2**30  # bytes of decoded images that may be held


@dataclass(frozen=True)
class Batch:
    images: Tensor  # (B, C, H, W) uint8
    labels: Tensor  # (B,) int64
    picks: Picks


class Store(Protocol):
    """Where the images of a batch come from."""

    def fetch(self, picks: Picks, size: tuple[int, int]) -> Tensor: ...


@dataclass(frozen=True)
class InMemory:
    pixels: Tensor  # (N, C, H, W) uint8
    augment: Augment

    def fetch(self, picks: Picks, size: tuple[int, int]) -> Tensor:
        images = augment(self.pixels[torch.from_numpy(picks.index)], picks, self.augment)
        if size == tuple(images.shape[2:]):
            return images
        resized = torch.nn.functional.interpolate(images.float(), size=size, mode="bicubic", antialias=True)
        return resized.round().clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class FromFiles:
    split: Split
    preprocess: Preprocess
    augment: Augment

    def fetch(self, picks: Picks, size: tuple[int, int]) -> Tensor:
        preprocess, resized = self.preprocess.replace(size=size), self.augment.crop == "resized"
        if resized:
            rows = [self._cropped(preprocess, picks[i : i + 1]) for i in range(len(picks))]
        else:
            rows = [preprocess.array(self.split.images[i], self.split.images.name(i)) for i in picks.index.tolist()]
        images = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).contiguous()
        return augment(images, picks, self.augment, geometry_done=resized)

    def _cropped(self, preprocess: Preprocess, pick: Picks) -> np.ndarray:
        index, flip = int(pick.index[0]), self.augment.flip and bool(flips(pick)[0])
        name = self.split.images.name(index)
        # The narrowest crop is this share of a side: the whole image may be decoded that much smaller.
        room = int(max(preprocess.size) / (self.augment.scale[0] * self.augment.ratio[0]) ** 0.5)
        image = decode(self.split.images[index], channels=preprocess.channels, min_size=(room, room), name=name)
        widths, heights = np.array([image.width]), np.array([image.height])
        box = crop_box(pick, self.augment, widths, heights)[0]
        left, top, right, bottom = (float(edge) for edge in box)
        return preprocess.random_resized(image, (left, top, right, bottom), flip)


Bad = list[tuple[str, str]]  # (name, reason) of images that cannot be read


def make_store(split: Split, preprocess: Preprocess, settings: Augment, limit: float) -> tuple[Store, Split, Bad]:
    """Memory where it is enough and nothing is lost by it, files otherwise; and the split without what is corrupt."""
    needed = len(split) * preprocess.channels * preprocess.size[0] * preprocess.size[1]
    if needed <= MEMORY and (settings.crop != "resized" or _as_they_are(split, preprocess) is not None):
        pixels, kept, bad = load(split, preprocess, limit)
        return InMemory(pixels, settings), kept, bad
    kept, bad = usable(split, lambda image, name: decode(image, channels=preprocess.channels, name=name), limit)
    return FromFiles(kept, preprocess, settings), kept, bad


def load(split: Split, preprocess: Preprocess, limit: float) -> tuple[Tensor, Split, Bad]:
    """A whole split as the model sees it, (N, C, H, W) uint8, and the split without what is corrupt."""
    if (pixels := _as_they_are(split, preprocess)) is not None:
        return pixels, split, []
    images, kept, bad = read_all(split, preprocess, limit)
    return torch.stack(images), kept, bad


def _as_they_are(split: Split, preprocess: Preprocess) -> Tensor | None:
    """Arrays that preprocessing would leave unchanged, taken in one go."""
    pixels = arrays_of(split)
    if pixels is None or preprocess.crop_fraction != 1:
        return None
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.shape[1:] != (*preprocess.size, preprocess.channels):
        return None
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def arrays_of(split: Split) -> np.ndarray | None:
    """The pixels of a split that is held as one array."""
    images, rows = split.images, None
    while isinstance(images, Subset):
        rows = images.indices if rows is None else images.indices[rows]
        images = images.images
    if not isinstance(images, Arrays):
        return None
    return images.pixels if rows is None else images.pixels[rows]


@dataclass(frozen=True)
class Feed:
    """Batches by step; `part` is the share of each that falls to this process."""

    store: Store
    labels: np.ndarray
    plan: Plan
    part: tuple[int, int] = (0, 1)

    def batch(self, step: int, size: tuple[int, int]) -> Batch:
        picks = self.plan.at(step, self.part)
        return Batch(self.store.fetch(picks, size), torch.from_numpy(self.labels[picks.index]), picks)

    def stream(self, start: int, size_at: Callable[[int], tuple[int, int]], workers: int) -> Iterator[Batch]:
        """Batches from a step on, without end, made ahead of their use by a thread or by worker processes."""
        if workers == 0:
            yield from self._threaded(start, size_at)
            return
        wanted = ((step, size_at(step)) for step in count(start))
        yield from DataLoader(_Steps(self), batch_size=None, sampler=wanted, num_workers=workers, prefetch_factor=2)

    def _threaded(self, start: int, size_at: Callable[[int], tuple[int, int]]) -> Iterator[Batch]:
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="feed") as pool:
            step, ahead = start, pool.submit(self.batch, start, size_at(start))
            while True:
                ready, step = ahead.result(), step + 1
                ahead = pool.submit(self.batch, step, size_at(step))
                yield ready


class _Steps(Dataset[Batch]):
    """(step, size) → batch, for the worker processes of a DataLoader."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def __getitem__(self, wanted: tuple[int, tuple[int, int]]) -> Batch:
        return self.feed.batch(*wanted)
