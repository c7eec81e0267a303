"""Sample order as a pure function of (seed, step).

The epochs form one stream of samples, and a step takes the next `batch_size` of them. So every batch is full, every
sample comes exactly once per epoch, and the state of the loader is one integer.

Samples in shards cannot be read fast in any order. Their chunks, which are stored together, are shuffled by (seed,
epoch); consecutive chunks form a window of so many bytes, and samples are shuffled within the window. So a reader holds
one window at a time, and every process can compute the sample at any position without reading those before it. A split
that fits into one window has the order of a folder of the same images.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from vitkit.data.dataset import Split, unwrap_subsets
from vitkit.data.rng import SampleKeys, permutation, uniform
from vitkit.data.shards.reader import ShardImages
from vitkit.errors import ConfigError

PAIR = 2  # neighbours in a batch are mixed with each other (`mixup.py`), so they must be in one process


def rank_rows(batch_size: int, rank: tuple[int, int]) -> range:
    """Return the rows of a batch for rank `rank[0]` of `rank[1]`: evenly, and in pairs if there are enough."""
    number, world_size = rank
    if batch_size < world_size:
        raise ConfigError(
            f"batch={batch_size} is too small for {world_size} processes: use at least {world_size * PAIR}"
        )
    unit = _unit(batch_size, world_size)
    units = -(-batch_size // unit)
    return range(unit * (number * units // world_size), min(batch_size, unit * ((number + 1) * units // world_size)))


def max_rank_rows(batch_size: int, world_size: int) -> int:
    """Return the largest number of rows that any rank processes."""
    unit = _unit(batch_size, world_size)
    return min(batch_size, unit * -(-batch_size // (unit * world_size)))


def _unit(batch_size: int, world_size: int) -> int:
    return PAIR if batch_size >= world_size * PAIR else 1


@dataclass(frozen=True, eq=False)  # compared by identity: it is a key of the caches below
class ShuffleWindows:
    members: np.ndarray  # the samples, chunk by chunk
    starts: np.ndarray  # (chunks + 1,): where each chunk begins in `members`
    sizes: np.ndarray  # (chunks,), bytes
    limit: int  # bytes of a window

    def at(self, seed: int, epoch: int, position: np.ndarray) -> np.ndarray:
        """Return the samples at these positions of an epoch."""
        _, _, ends = _epoch_windows(self, seed, epoch)
        window = np.searchsorted(ends, position, side="right")
        index = np.empty_like(position)
        for w in np.unique(window):
            here = window == w
            index[here] = _window_order(self, seed, epoch, int(w))[position[here] - (ends[w - 1] if w else 0)]
        return index


def shuffle_windows(split: Split) -> ShuffleWindows | None:
    """Return the windows of a split in shards; None if it fits into one window, or is not in shards."""
    images, rows = unwrap_subsets(split.images)
    if not isinstance(images, ShardImages):
        return None
    rows = np.arange(len(images)) if rows is None else rows
    sizes = images.samples.size[rows]
    if int(sizes.sum()) <= images.window:
        return None
    _, chunk = np.unique(images.chunks()[rows], return_inverse=True)
    members = np.argsort(chunk, kind="stable")
    starts = np.r_[0, np.cumsum(np.bincount(chunk))]
    return ShuffleWindows(members, starts, np.bincount(chunk, sizes).astype(np.int64), images.window)


@lru_cache(maxsize=4)
def _epoch_windows(windows: ShuffleWindows, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the shuffled chunks of an epoch, the window of each, and the position where each window ends."""
    chunks = np.argsort(uniform("chunks", seed, epoch, np.arange(len(windows.sizes))), kind="stable")
    sizes = windows.sizes[chunks]
    _, window = np.unique((np.cumsum(sizes) - sizes) // windows.limit, return_inverse=True)
    ends = np.cumsum(np.bincount(window, np.diff(windows.starts)[chunks]).astype(np.int64))
    return chunks, window, ends


@lru_cache(maxsize=8)
def _window_order(windows: ShuffleWindows, seed: int, epoch: int, number: int) -> np.ndarray:
    chunks, window, _ = _epoch_windows(windows, seed, epoch)
    parts = [windows.members[windows.starts[c] : windows.starts[c + 1]] for c in chunks[window == number]]
    members = np.sort(np.concatenate(parts))
    return members[np.argsort(uniform("order", seed, epoch, members), kind="stable")]


@dataclass(frozen=True)
class Sampler:
    """Shuffles `count` samples anew in every epoch.

    `repeats` is for repeated augmentation (Hoffer et al. 2020): each sample comes this many times close together, with
    different draws, and an epoch shows correspondingly fewer samples. `weights` samples with replacement, in proportion
    to them. `windows` shuffles within these windows only.
    """

    count: int
    batch_size: int
    seed: int = 0
    repeats: int = 1
    weights: np.ndarray | None = field(default=None, compare=False)
    windows: ShuffleWindows | None = field(default=None, compare=False)

    def steps(self, epochs: float) -> int:
        """Return the number of steps that show `epochs` times as many images as there are samples."""
        return max(1, int(np.ceil(epochs * self.count / self.batch_size - 1e-9)))

    def at(self, step: int, rank: tuple[int, int] = (0, 1)) -> SampleKeys:
        """Return the batch of a step, or the part of it for rank `rank[0]` of `rank[1]`."""
        rows = rank_rows(self.batch_size, rank)
        stream = np.arange(rows.start, rows.stop) + step * self.batch_size
        epoch, position = stream // self.count, stream % self.count
        index, repeat = np.empty_like(position), np.empty_like(position)
        for e in np.unique(epoch):
            here = epoch == e
            index[here], repeat[here] = self._in_epoch(int(e), position[here])
        return SampleKeys(self.seed, epoch, index, repeat)

    def _in_epoch(self, epoch: int, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples at these positions of an epoch, and which repeat of each it is."""
        if self.weights is not None:
            index, repeat = _weighted_order(self.seed, epoch, self.weights.astype(np.float64).tobytes(), self.repeats)
            return index[position], repeat[position]
        position, repeat = _repeat_positions(position, self.repeats)
        if self.windows is not None:
            return self.windows.at(self.seed, epoch, position), repeat
        return _epoch_order(self.seed, epoch, self.count)[position], repeat


# A batch contains samples of at most two epochs; the next one may be read in advance.
_epoch_order = lru_cache(maxsize=4)(permutation)


@lru_cache(maxsize=4)
def _weighted_order(seed: int, epoch: int, weights: bytes, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    cumulative = np.cumsum(np.frombuffer(weights))
    draws = uniform("balanced", seed, epoch, np.arange(len(cumulative)))
    index = np.searchsorted(cumulative / cumulative[-1], draws, side="right").clip(max=len(cumulative) - 1)
    index = index[_repeat_positions(np.arange(len(cumulative)), repeats)[0]]
    return index, _occurrence(index)


def _repeat_positions(position: np.ndarray, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (sample, repeat) at each position: samples 0 1 0 1 2 3 2 3 … for two repeats.

    Samples alternate in pairs because neighbours in a batch are mixed (`mixup.py`), and mixing two views of one sample
    would have no effect.
    """
    block, within = np.divmod(position, 2 * repeats)
    return 2 * block + within % 2, within // 2


def _occurrence(index: np.ndarray) -> np.ndarray:
    """Return for each element how many equal ones precede it."""
    order = np.argsort(index, kind="stable")
    first = np.r_[True, np.diff(index[order]) != 0]
    start = np.maximum.accumulate(np.where(first, np.arange(len(index)), 0))
    count = np.empty_like(index)
    count[order] = np.arange(len(index)) - start
    return count
