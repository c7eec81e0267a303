"""Step → a batch of training images: looked up in memory, or decoded as it is needed.

Images of one size that fit in memory are decoded once and augmented as batches. Larger ones are decoded anew each time,
since a random-resized crop wants the original pixels; Pillow cuts and resizes them in one go. Either way a batch is a
pure function of its step, so worker processes change nothing but the speed.
"""

import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from types import FrameType
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vitkit.data.dataset import ArrayImages, RawImage, Split
from vitkit.data.decode import decode, oriented_size, read_header
from vitkit.data.pipeline import READ_CHUNK, THREADS, CorruptionBudget, Progress, read_split, threaded_map
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.data.rng import SampleKeys
from vitkit.data.sampler import Sampler
from vitkit.data.shards.reader import read_many, unwrap_subsets
from vitkit.data.transforms import Augment, augment, draw_crop_boxes, draw_flips
from vitkit.errors import CorruptImageError

MEMORY = 4 * 2**30  # bytes of decoded images that may be held


@dataclass(frozen=True)
class Batch:
    images: Tensor  # (B, C, H, W) uint8
    labels: Tensor  # (B,) int64
    keys: SampleKeys


class BatchSource(Protocol):
    """Where the images of a batch come from."""

    @property
    def threads(self) -> int:
        """How many batches are worth making at once."""
        ...

    def fetch(self, keys: SampleKeys, size: tuple[int, int]) -> Tensor: ...


@dataclass(frozen=True)
class InMemorySource:
    pixels: Tensor  # (N, C, H, W) uint8
    augment: Augment
    threads = 1  # torch's own threads share the work

    def fetch(self, keys: SampleKeys, size: tuple[int, int]) -> Tensor:
        images = augment(self.pixels[torch.from_numpy(keys.index)], keys, self.augment)
        if size == tuple(images.shape[2:]):
            return images
        resized = torch.nn.functional.interpolate(images.float(), size=size, mode="bicubic", antialias=True)
        return resized.round().clamp(0, 255).to(torch.uint8)


class Gone(CorruptImageError):
    """A sample that could be read, or was sure to be, before the run began."""

    def __init__(self, index: int, error: CorruptImageError) -> None:
        super().__init__(error.name, error.reason)
        self.index = index

    def __reduce__(self) -> tuple[type, tuple[int, CorruptImageError]]:
        return Gone, (self.index, CorruptImageError(self.name, self.reason))


@dataclass(frozen=True)
class FileSource:
    split: Split
    preprocess: Preprocess
    augment: Augment
    threads = min(os.cpu_count() or 1, THREADS)  # Pillow decodes and resizes with Python's lock released

    def fetch(self, keys: SampleKeys, size: tuple[int, int]) -> Tensor:
        preprocess = self.preprocess.replace(size=size)
        cut = self.augment.crop == "resized" and preprocess.channels in (1, 3)  # Pillow knows no others
        rows = self._cropped(preprocess, keys) if cut else self._whole(preprocess, keys)
        images = torch.from_numpy(np.stack(rows)).permute(0, 3, 1, 2).contiguous()
        return augment(images, keys, self.augment, geometry_done=cut)

    def _read(self, keys: SampleKeys) -> Iterator[tuple[RawImage, str]]:
        """Each with its name."""
        for index, encoded in zip(keys.index.tolist(), read_many(self.split.images, keys.index), strict=True):
            if isinstance(encoded, CorruptImageError):
                raise Gone(index, encoded)
            yield encoded, self.split.images.name(index)

    def _whole(self, preprocess: Preprocess, keys: SampleKeys) -> list[np.ndarray]:
        return [preprocess.array(encoded, name) for encoded, name in self._read(keys)]

    def _cropped(self, preprocess: Preprocess, keys: SampleKeys) -> list[np.ndarray]:
        """Headers first: the boxes of a batch are drawn in one go, and each image is decoded no larger than its box
        asks for."""
        contents, names = zip(*self._read(keys), strict=True)
        headers = [read_header(encoded, name) for encoded, name in zip(contents, names, strict=True)]
        widths, heights = np.array([oriented_size(header) for header in headers]).T
        boxes = draw_crop_boxes(keys, self.augment, widths, heights).tolist()
        flipped = draw_flips(keys) if self.augment.flip else np.zeros(len(keys), dtype=bool)
        rows = []
        for header, name, (left, top, right, bottom), flip in zip(headers, names, boxes, flipped, strict=True):
            room = int(preprocess.size[0] / (bottom - top)), int(preprocess.size[1] / (right - left))
            image = decode(header, channels=preprocess.channels, min_size=room, name=name)
            rows.append(preprocess.random_resized_crop(image, (left, top, right, bottom), bool(flip)))
        return rows


Bad = list[tuple[str, str]]  # (name, reason) of images that cannot be read


def make_source(
    split: Split,
    preprocess: Preprocess,
    settings: Augment,
    limit: float,
    progress: Progress | None = None,
    known: ReadabilityCache | None = None,
) -> tuple[BatchSource, Split, Bad]:
    """Memory where it is enough and nothing is lost by it, files otherwise; and the split without what is corrupt."""
    if fits_memory(split, preprocess) and (settings.crop != "resized" or _as_they_are(split, preprocess) is not None):
        pixels, kept, bad = load(split, preprocess, limit, progress)
        return InMemorySource(pixels, settings), kept, bad
    kept, bad = filter_readable(split, preprocess.check_decodable, limit, progress, known, trust=True)
    return FileSource(kept, preprocess, settings), kept, bad


def fits_memory(split: Split, preprocess: Preprocess) -> bool:
    return len(split) * preprocess.channels * preprocess.size[0] * preprocess.size[1] <= MEMORY


def load(
    split: Split, preprocess: Preprocess, limit: float, progress: Progress | None = None
) -> tuple[Tensor, Split, Bad]:
    """A whole split as the model sees it, (N, C, H, W) uint8, and the split without what is corrupt."""
    if (pixels := _as_they_are(split, preprocess)) is not None:
        return pixels, split, []
    images, kept, bad = read_split(split, preprocess, limit, progress)
    none = torch.empty((0, preprocess.channels, *preprocess.size), dtype=torch.uint8)
    return torch.stack(images) if images else none, kept, bad


def _as_they_are(split: Split, preprocess: Preprocess) -> Tensor | None:
    """ArrayImages that preprocessing would leave unchanged, taken in one go."""
    pixels = pixels_of(split)
    if pixels is None or preprocess.crop_fraction != 1:
        return None
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.shape[1:] != (*preprocess.size, preprocess.channels):
        return None
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def pixels_of(split: Split) -> np.ndarray | None:
    """The pixels of a split that is held as one array."""
    images, rows = unwrap_subsets(split.images)
    if not isinstance(images, ArrayImages):
        return None
    return images.pixels if rows is None else images.pixels[rows]


@dataclass(frozen=True)
class BatchLoader:
    """Batches by step; `part` is the share of each that falls to this process.

    With `lost`, the place of a sample that has gone since the run began is taken by the next one in the split: whoever
    meets it does the same, and a resumed run too. It is said and counted, and too many end the run.
    """

    source: BatchSource
    labels: np.ndarray
    sampler: Sampler
    part: tuple[int, int] = (0, 1)
    lost: CorruptionBudget | None = None

    def batch(self, step: int, size: tuple[int, int]) -> Batch:
        keys = self.sampler.at(step, self.part)
        while True:
            try:
                return Batch(self.source.fetch(keys, size), torch.from_numpy(self.labels[keys.index]), keys)
            except Gone as gone:
                if self.lost is None:
                    raise
                keys = self._without(keys, gone, self.lost)

    def _without(self, keys: SampleKeys, gone: Gone, lost: CorruptionBudget) -> SampleKeys:
        if gone.name not in lost.found:
            logging.getLogger(__name__).warning("left out from step to step: %s", gone)
        lost.add(gone)
        instead = (gone.index + 1) % self.sampler.count
        return replace(keys, index=np.where(keys.index == gone.index, instead, keys.index))

    def stream(self, start: int, size_at: Callable[[int], tuple[int, int]], workers: int) -> Iterator[Batch]:
        """Batches from a step on, without end, made ahead of their use by threads or by worker processes."""
        if workers == 0:
            yield from self._threaded(start, size_at)
            return
        wanted = ((step, size_at(step)) for step in count(start))
        batches = iter(DataLoader(
            _Steps(self), batch_size=None, sampler=wanted, num_workers=workers, prefetch_factor=2,
            worker_init_fn=_leave_it_to_the_main_process,
        ))  # fmt: skip
        try:
            yield from batches
        finally:  # at the end of Python they would be sent one SIGTERM, and waited for
            batches._shutdown_workers()  # type: ignore[attr-defined]  # no public way ends them at once

    def _threaded(self, start: int, size_at: Callable[[int], tuple[int, int]]) -> Iterator[Batch]:
        with ThreadPoolExecutor(self.source.threads, thread_name_prefix="feed") as pool:
            jobs = (pool.submit(self.batch, step, size_at(step)) for step in count(start))
            waiting = deque(islice(jobs, self.source.threads))
            while True:
                ready = waiting.popleft().result()
                waiting.extend(islice(jobs, 1))
                yield ready


def _leave_it_to_the_main_process(worker: int) -> None:
    """A signal that is sent to all processes asks the main one to save and leave: it needs its workers until then, and
    ends them itself. Only a second one is theirs."""

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, first)


class _Steps(Dataset[Batch]):
    """(step, size) → batch, for the worker processes of a DataLoader."""

    def __init__(self, feed: BatchLoader) -> None:
        self.feed = feed

    def __getitem__(self, wanted: tuple[int, tuple[int, int]]) -> Batch:
        return self.feed.batch(*wanted)


class View(Protocol):
    def batches(self, size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        """(at most `size`, C, H, W) uint8: all of them, or those of these numbers."""
        ...


@dataclass(frozen=True)
class CachedView:
    pixels: Tensor  # (N, C, H, W) uint8

    def batches(self, size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        yield from (self.pixels[rows.start : rows.stop] for rows in _rows(len(self.pixels), size, which))


@dataclass(frozen=True)
class StreamingView:
    """Decoded by threads while the model is at work on the batch before. An image that has gone bad is an error."""

    split: Split
    preprocess: Preprocess

    def batches(self, size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        batches = _rows(len(self.split), size, which)
        wanted = np.array(list(chain.from_iterable(batches)), dtype=np.int64)
        blocks = [wanted[start : start + READ_CHUNK] for start in range(0, len(wanted), READ_CHUNK)]
        ahead = max(size // READ_CHUNK, THREADS)
        images = chain.from_iterable(threaded_map(lambda i: self._read(blocks[i]), len(blocks), ahead=ahead))
        for rows in batches:
            yield torch.stack(list(islice(images, len(rows))))

    def _read(self, indices: np.ndarray) -> list[Tensor]:
        encoded = read_many(self.split.images, indices)
        return [self._seen(int(i), e) for i, e in zip(indices, encoded, strict=True)]

    def _seen(self, index: int, encoded: RawImage | CorruptImageError) -> Tensor:
        if isinstance(encoded, CorruptImageError):
            raise encoded
        return self.preprocess(encoded, self.split.images.name(index))


def _rows(count: int, size: int, which: Sequence[int] | None) -> list[range]:
    return [range(n * size, min((n + 1) * size, count)) for n in (range(-(-count // size)) if which is None else which)]


def make_view(
    split: Split,
    preprocess: Preprocess,
    limit: float,
    progress: Progress | None = None,
    known: ReadabilityCache | None = None,
) -> tuple[View, Split, Bad]:
    """Of what is not corrupt in a split; and that part of the split, and the rest."""
    if fits_memory(split, preprocess):
        pixels, kept, bad = load(split, preprocess, limit, progress)
        return CachedView(pixels), kept, bad
    kept, bad = filter_readable(split, preprocess.check_decodable, limit, progress, known)
    return StreamingView(kept, preprocess), kept, bad
