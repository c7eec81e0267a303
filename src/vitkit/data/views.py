"""A split as the model sees it, batch by batch and in order: held decoded where that fits, else decoded anew each time.

The numbers are the same either way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from vitkit.data.dataset import READ_TOGETHER, THREADS, Encoded, Progress, Split, parallel
from vitkit.data.loader import Bad, fits_memory, load
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import Known, usable
from vitkit.data.shards.reader import read_many
from vitkit.errors import CorruptImageError


class View(Protocol):
    def batches(self, size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        """(at most `size`, C, H, W) uint8: all of them, or those of these numbers."""
        ...


@dataclass(frozen=True)
class Held:
    pixels: Tensor  # (N, C, H, W) uint8

    def batches(self, size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        yield from (self.pixels[rows.start : rows.stop] for rows in _rows(len(self.pixels), size, which))


@dataclass(frozen=True)
class Streamed:
    """Decoded by threads while the model is at work on the batch before. An image that has gone bad is an error."""

    split: Split
    preprocess: Preprocess

    def batches(self, size: int, which: Sequence[int] | None = None) -> Iterator[Tensor]:
        batches = _rows(len(self.split), size, which)
        wanted = np.array(list(chain.from_iterable(batches)), dtype=np.int64)
        blocks = [wanted[start : start + READ_TOGETHER] for start in range(0, len(wanted), READ_TOGETHER)]
        ahead = max(size // READ_TOGETHER, THREADS)
        images = chain.from_iterable(parallel(lambda i: self._read(blocks[i]), len(blocks), ahead=ahead))
        for rows in batches:
            yield torch.stack(list(islice(images, len(rows))))

    def _read(self, indices: np.ndarray) -> list[Tensor]:
        encoded = read_many(self.split.images, indices)
        return [self._seen(int(i), e) for i, e in zip(indices, encoded, strict=True)]

    def _seen(self, index: int, encoded: Encoded | CorruptImageError) -> Tensor:
        if isinstance(encoded, CorruptImageError):
            raise encoded
        return self.preprocess(encoded, self.split.images.name(index))


def _rows(count: int, size: int, which: Sequence[int] | None) -> list[range]:
    return [range(n * size, min((n + 1) * size, count)) for n in (range(-(-count // size)) if which is None else which)]


def view(
    split: Split,
    preprocess: Preprocess,
    limit: float,
    progress: Progress | None = None,
    known: Known | None = None,
) -> tuple[View, Split, Bad]:
    """Of what is not corrupt in a split; and that part of the split, and the rest."""
    if fits_memory(split, preprocess):
        pixels, kept, bad = load(split, preprocess, limit, progress)
        return Held(pixels), kept, bad
    kept, bad = usable(split, preprocess.check_decodable, limit, progress, known)
    return Streamed(kept, preprocess), kept, bad
