"""Load batches: random training batches by step (`BatchLoader`), and whole splits in order (`View`, `SplitReader`).

Small images that fit into memory are decoded once and augmented as batches. Larger ones are decoded anew each time,
because a random-resized crop needs the original pixels; Pillow crops and resizes them in one call. Either way a batch
is a pure function of its step, so the number of worker processes changes only the speed.
"""

import logging
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from types import FrameType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from vitkit.data.dataset import ArrayImages, RawImage, ReadFailure, Split, unwrap_subsets
from vitkit.data.decode import oriented_size, read_header
from vitkit.data.decode_pipeline import AHEAD, CORRUPT_LIMIT, CorruptionBudget, Progress, read_images, read_split
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.data.rng import SampleKeys
from vitkit.data.sampler import Sampler
from vitkit.data.transforms import Augment, augment, draw_crop_boxes, draw_flips
from vitkit.errors import InputError
from vitkit.runtime.threads import THREADS, threaded_map

MEMORY = 4 * 2**30  # bytes of decoded images that may be held

Size = tuple[int, int]  # (height, width)


@dataclass(frozen=True)
class Batch:
    images: Tensor  # (B, C, H, W) uint8
    labels: Tensor  # (B,) int64
    keys: SampleKeys


class BatchSource(Protocol):
    """Provides the images of training batches."""

    @property
    def threads(self) -> int:
        """The number of batches to make concurrently."""
        ...

    def fetch(self, keys: SampleKeys, size: Size) -> Tensor | Mapping[int, ReadFailure]:
        """Return augmented images (B, C, H, W) uint8; if some cannot be read, return their failures by sample index."""
        ...


@dataclass(frozen=True)
class InMemorySource:
    pixels: Tensor  # (N, C, H, W) uint8
    augment: Augment
    threads = 1  # torch's own threads share the work

    def fetch(self, keys: SampleKeys, size: Size) -> Tensor:
        images = augment(self.pixels[torch.from_numpy(keys.index)], keys, self.augment)
        if size == tuple(images.shape[2:]):
            return images
        resized = torch.nn.functional.interpolate(images.float(), size=size, mode="bicubic", antialias=True)
        return resized.round().clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class FileSource:
    split: Split
    preprocess: Preprocess
    augment: Augment
    threads = min(os.cpu_count() or 1, THREADS)  # Pillow decodes and resizes with Python's lock released

    def fetch(self, keys: SampleKeys, size: Size) -> Tensor | Mapping[int, ReadFailure]:
        found = self.split.images.read_many(keys.index)
        pairs = zip(keys.index.tolist(), found, strict=True)
        if failures := {index: image for index, image in pairs if isinstance(image, ReadFailure)}:
            return failures
        images = [image for image in found if not isinstance(image, ReadFailure)]
        names = [self.split.images.name(index) for index in keys.index.tolist()]
        preprocess = self.preprocess.replace(size=size)
        crop_now = self.augment.crop == "resized" and preprocess.channels in (1, 3)  # Pillow supports no others
        if crop_now:
            rows = self._random_resized_crops(preprocess, keys, images, names)
        else:
            rows = [preprocess.array(image, name) for image, name in zip(images, names, strict=True)]
        batch = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).contiguous()
        return augment(batch, keys, self.augment, geometry_done=crop_now)

    def _random_resized_crops(
        self, preprocess: Preprocess, keys: SampleKeys, images: Sequence[RawImage], names: Sequence[str]
    ) -> list[np.ndarray]:
        """Return random crops, resized. Each image is decoded no larger than its box needs, which the header shows."""
        headers = [read_header(image, name) for image, name in zip(images, names, strict=True)]
        widths, heights = np.array([oriented_size(header) for header in headers]).T
        boxes = draw_crop_boxes(keys, self.augment, widths, heights).tolist()
        flips = draw_flips(keys) if self.augment.flip else np.zeros(len(keys), dtype=bool)
        rows = []
        for header, name, (left, top, right, bottom), flip in zip(headers, names, boxes, flips, strict=True):
            min_size = int(preprocess.size[0] / (bottom - top)), int(preprocess.size[1] / (right - left))
            image = preprocess.decode(header, name, min_size=min_size)
            rows.append(preprocess.random_resized_crop(image, (left, top, right, bottom), bool(flip)))
        return rows


def make_source(
    split: Split,
    preprocess: Preprocess,
    augment: Augment,
    corrupt_limit: float,
    progress: Progress | None = None,
    cache: ReadabilityCache | None = None,
) -> tuple[BatchSource, Split, list[ReadFailure]]:
    """Return a source of training batches, the split without unreadable images, and the failures.

    The source holds its images in memory if they fit and if augmentation does not need their original size.
    """
    keeps_size = augment.crop != "resized" or _unchanged_pixels(split, preprocess) is not None
    if fits_memory(split, preprocess) and keeps_size:
        pixels, readable, failures = load_pixels(split, preprocess, corrupt_limit, progress)
        return InMemorySource(pixels, augment), readable, failures
    check = preprocess.check_decodable
    readable, failures = filter_readable(split, check, corrupt_limit, progress, cache, trust_packed=True)
    return FileSource(readable, preprocess, augment), readable, failures


def fits_memory(split: Split, preprocess: Preprocess) -> bool:
    return len(split) * preprocess.channels * preprocess.size[0] * preprocess.size[1] <= MEMORY


def load_pixels(
    split: Split, preprocess: Preprocess, corrupt_limit: float, progress: Progress | None = None
) -> tuple[Tensor, Split, list[ReadFailure]]:
    """Return the preprocessed images, (N, C, H, W) uint8, the split without unreadable images, and the failures."""
    if (pixels := _unchanged_pixels(split, preprocess)) is not None:
        return pixels, split, []
    images, readable, failures = read_split(split, preprocess, corrupt_limit, progress)
    empty = torch.empty((0, preprocess.channels, *preprocess.size), dtype=torch.uint8)
    return torch.stack(images) if images else empty, readable, failures


def pixels_of(split: Split) -> np.ndarray | None:
    """Return the pixels of a split whose images are one array; None for other splits."""
    images, rows = unwrap_subsets(split.images)
    if not isinstance(images, ArrayImages):
        return None
    return images.pixels if rows is None else images.pixels[rows]


def _unchanged_pixels(split: Split, preprocess: Preprocess) -> Tensor | None:
    """Return the pixels of a split that is an array and that preprocessing would not change; None for others."""
    pixels = pixels_of(split)
    if pixels is None or preprocess.crop_fraction != 1:
        return None
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.shape[1:] != (*preprocess.size, preprocess.channels):
        return None
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


@dataclass(frozen=True)
class BatchLoader:
    """Makes the training batch of any step. `rank`, (rank, number of ranks), selects the rows of this process.

    With a `budget`, a sample that became unreadable during the run is replaced by the next one in the split, logged and
    counted. Every process, and a resumed run, replaces it by the same sample. Without a budget it is an error.
    """

    source: BatchSource
    labels: np.ndarray
    sampler: Sampler
    rank: tuple[int, int] = (0, 1)
    budget: CorruptionBudget | None = None

    def batch(self, step: int, size: Size) -> Batch:
        keys = self.sampler.at(step, self.rank)
        while not isinstance(images := self.source.fetch(keys, size), Tensor):
            keys = self._replace(keys, images)
        return Batch(images, torch.from_numpy(self.labels[keys.index]), keys)

    def _replace(self, keys: SampleKeys, failures: Mapping[int, ReadFailure]) -> SampleKeys:
        for index, failure in failures.items():
            if self.budget is None:
                raise failure.error()
            if failure not in self.budget:
                logging.getLogger(__name__).warning("unreadable, replaced by the next sample: %s", failure)
            self.budget.add(failure)
            following = (index + 1) % self.sampler.count
            keys = replace(keys, index=np.where(keys.index == index, following, keys.index))
        return keys

    def stream(self, start: int, size_at: Callable[[int], Size], workers: int) -> Generator[Batch]:
        """Yield batches without end, from the step `start` on. Threads or worker processes make them in advance."""
        if workers == 0:
            threads = self.source.threads
            yield from threaded_map(lambda step: self.batch(step, size_at(step)), count(start), threads, ahead=threads)
            return
        wanted = ((step, size_at(step)) for step in count(start))
        batches = iter(DataLoader(
            _StepDataset(self), batch_size=None, sampler=wanted, num_workers=workers, prefetch_factor=2,
            worker_init_fn=_ignore_first_signal,
        ))  # fmt: skip
        try:
            yield from batches
        finally:  # otherwise they would run until Python exits
            batches._shutdown_workers()  # type: ignore[attr-defined]  # there is no public way to end them at once


def _ignore_first_signal(worker: int) -> None:
    """Ignore one SIGINT and one SIGTERM in a worker.

    A signal sent to all processes asks the main one to save and exit. It needs its workers until then, and ends them.
    """

    def ignore_once(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ignore_once)


class _StepDataset(TorchDataset[Batch]):
    """Maps (step, size) to a batch, for the worker processes of a DataLoader."""

    def __init__(self, loader: BatchLoader) -> None:
        self.loader = loader

    def __getitem__(self, wanted: tuple[int, Size]) -> Batch:
        return self.loader.batch(*wanted)


class View(Protocol):
    """A preprocessed split that can be read in order as often as needed."""

    def batches(self, batch_size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        """Yield batches of at most `batch_size` images, (B, C, H, W) uint8: all, or only the numbers in `which`."""
        ...


@dataclass(frozen=True)
class CachedView:
    pixels: Tensor  # (N, C, H, W) uint8

    def batches(self, batch_size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        yield from (self.pixels[r.start : r.stop] for r in _batch_rows(len(self.pixels), batch_size, which))


@dataclass(frozen=True)
class StreamingView:
    """Decodes by threads while the model works on the previous batch. An unreadable image is an error."""

    split: Split
    preprocess: Preprocess

    def batches(self, batch_size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        batches = _batch_rows(len(self.split), batch_size, which)
        indices = np.array(list(chain.from_iterable(batches)), dtype=np.int64)
        stream = read_images(self.split.images, indices, self.preprocess, ahead=max(batch_size, AHEAD))
        for rows in batches:
            images = list(islice(stream, len(rows)))
            for failure in (image for image in images if isinstance(image, ReadFailure)):
                raise failure.error()
            yield torch.stack(images)


def _batch_rows(total: int, batch_size: int, which: Sequence[int] | None) -> list[range]:
    numbers = range(-(-total // batch_size)) if which is None else which
    return [range(n * batch_size, min((n + 1) * batch_size, total)) for n in numbers]


def make_view(
    split: Split,
    preprocess: Preprocess,
    corrupt_limit: float,
    progress: Progress | None = None,
    cache: ReadabilityCache | None = None,
) -> tuple[View, Split, list[ReadFailure]]:
    """Return a view of the readable images, the split of these images, and the failures.

    The view holds its pixels in memory if they fit; they are the same either way.
    """
    if fits_memory(split, preprocess):
        pixels, readable, failures = load_pixels(split, preprocess, corrupt_limit, progress)
        return CachedView(pixels), readable, failures
    readable, failures = filter_readable(split, preprocess.check_decodable, corrupt_limit, progress, cache)
    return StreamingView(readable, preprocess), readable, failures


class SplitReader:
    """Reads a split once, in batches. After the last one, `indices` are the images read, `skipped` the failures."""

    def __init__(
        self,
        split: Split,
        preprocess: Preprocess,
        batch_size: int,
        progress: Progress | None = None,
        corrupt_limit: float = CORRUPT_LIMIT,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch size {batch_size}: must be at least 1")
        self.split, self.preprocess, self.batch_size, self.progress = split, preprocess, batch_size, progress
        self.indices: list[int] = []
        self.budget = CorruptionBudget(len(split), corrupt_limit)

    @property
    def skipped(self) -> tuple[str, ...]:
        return tuple(map(str, self.budget.failures))

    def batches(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield normalized images and labels. Threads decode; pixels stay uint8 until they are on the device."""
        total = len(self.split)
        stream = enumerate(read_images(self.split.images, np.arange(total), self.preprocess))
        while results := list(islice(stream, self.batch_size)):
            self.budget.add(*(result for _, result in results if isinstance(result, ReadFailure)))
            images = {index: result for index, result in results if isinstance(result, Tensor)}
            self.indices.extend(images)
            if images:
                pixels = torch.stack(list(images.values())).to(device)
                yield self.preprocess.normalize(pixels), torch.from_numpy(self.split.labels[list(images)])
            if self.progress is not None:
                self.progress(results[-1][0] + 1, total)
