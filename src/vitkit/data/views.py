"""A split as the model sees it, batch by batch and in order: held decoded where that fits, else decoded anew each time.

The numbers are the same either way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor

from vitkit.data.feed import Bad, fits_memory, load
from vitkit.data.preprocess import Preprocess
from vitkit.data.source import Progress, Split, parallel
from vitkit.data.usable import Known, usable


class View(Protocol):
    def batches(self, size: int) -> Iterator[Tensor]:
        """(at most `size`, C, H, W) uint8."""
        ...


@dataclass(frozen=True)
class Held:
    pixels: Tensor  # (N, C, H, W) uint8

    def batches(self, size: int) -> Iterator[Tensor]:
        yield from (self.pixels[start : start + size] for start in range(0, len(self.pixels), size))


@dataclass(frozen=True)
class Streamed:
    """Decoded by threads while the model is at work on the batch before. An image that has gone bad is an error."""

    split: Split
    preprocess: Preprocess

    def batches(self, size: int) -> Iterator[Tensor]:
        images = iter(parallel(self._read, len(self.split), ahead=size))
        while rows := list(islice(images, size)):
            yield torch.stack(rows)

    def _read(self, index: int) -> Tensor:
        return self.preprocess(self.split.images[index], self.split.images.name(index))


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
    kept, bad = usable(split, preprocess.check, limit, progress, known)
    return Streamed(kept, preprocess), kept, bad
