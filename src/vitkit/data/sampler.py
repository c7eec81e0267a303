"""Which sample comes when: a pure function of (seed, step).

The epochs are laid end to end into one stream of samples, and a step takes the next `batch` of them. So every batch is
full, every sample comes exactly once per epoch, and the state of the loader is one integer.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from vitkit.data.dataset import Split
from vitkit.data.rng import SampleKeys, permutation, uniform
from vitkit.data.shards.reader import ShardImages, unwrap_subsets
from vitkit.errors import ConfigError

PAIR = 2  # neighbours in a batch are mixed with each other (`mixup.py`): they go to one process


def share(batch: int, part: tuple[int, int]) -> range:
    """The rows of a batch that fall to rank `part[0]` of `part[1]`: as evenly as pairs go, where there are enough."""
    rank, ranks = part
    if batch < ranks:
        raise ConfigError(f"batch={batch} is too small for {ranks} processes: use at least {ranks * PAIR}")
    unit = _unit(batch, ranks)
    units = -(-batch // unit)
    return range(unit * (rank * units // ranks), min(batch, unit * ((rank + 1) * units // ranks)))


def largest_share(batch: int, ranks: int) -> int:
    """No rank has more rows than this."""
    return min(batch, _unit(batch, ranks) * -(-batch // (_unit(batch, ranks) * ranks)))


def _unit(batch: int, ranks: int) -> int:
    return PAIR if batch >= ranks * PAIR else 1


@dataclass(frozen=True, eq=False)  # by identity, to be a key of the caches below
class ShuffleWindows:
    members: np.ndarray  # the samples, chunk by chunk
    starts: np.ndarray  # (chunks + 1,): where in `members` each chunk begins
    sizes: np.ndarray  # (chunks,), bytes
    limit: int  # bytes of a window

    def at(self, seed: int, epoch: int, place: np.ndarray) -> np.ndarray:
        """Which sample stands at these places of an epoch."""
        _, _, ends = _cut(self, seed, epoch)
        window = np.searchsorted(ends, place, side="right")
        index = np.empty_like(place)
        for w in np.unique(window):
            here = window == w
            index[here] = _window_order(self, seed, epoch, int(w))[place[here] - (ends[w - 1] if w else 0)]
        return index


def shuffle_windows(split: Split) -> ShuffleWindows | None:
    """None: everything is as near as everything else, or it all fits into one window."""
    images, rows = unwrap_subsets(split.images)
    if not isinstance(images, ShardImages):
        return None
    rows = np.arange(len(images)) if rows is None else rows
    if int(images.rows.size[rows].sum()) <= images.window:
        return None
    _, chunk = np.unique(images.chunks()[rows], return_inverse=True)
    members = np.argsort(chunk, kind="stable")
    starts = np.r_[0, np.cumsum(np.bincount(chunk))]
    sizes = np.bincount(chunk, images.rows.size[rows]).astype(np.int64)
    return ShuffleWindows(members, starts, sizes, images.window)


@lru_cache(maxsize=4)
def _cut(windows: ShuffleWindows, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The chunks in the order of this epoch, the window of each, and where in the epoch each window ends."""
    chunks = np.argsort(uniform("chunks", seed, epoch, np.arange(len(windows.sizes))), kind="stable")
    sizes = windows.sizes[chunks]
    _, window = np.unique((np.cumsum(sizes) - sizes) // windows.limit, return_inverse=True)
    ends = np.cumsum(np.bincount(window, np.diff(windows.starts)[chunks]).astype(np.int64))
    return chunks, window, ends


@lru_cache(maxsize=8)
def _window_order(windows: ShuffleWindows, seed: int, epoch: int, window: int) -> np.ndarray:
    chunks, of, _ = _cut(windows, seed, epoch)
    parts = [windows.members[windows.starts[c] : windows.starts[c + 1]] for c in chunks[of == window]]
    members = np.sort(np.concatenate(parts))
    return members[np.argsort(uniform("order", seed, epoch, members), kind="stable")]


@dataclass(frozen=True)
class Sampler:
    """`count` samples, shuffled anew in every epoch.

    `repeats`: repeated augmentation (Hoffer et al. 2020): each sample comes this many times close together, with other
    draws each time, and an epoch shows correspondingly fewer samples. `weights`: sample with replacement, this often.
    `windows`: shuffle within these, where samples cannot be read from anywhere at once.
    """

    count: int
    batch_size: int
    seed: int = 0
    repeats: int = 1
    weights: np.ndarray | None = field(default=None, compare=False)
    windows: ShuffleWindows | None = field(default=None, compare=False)

    def steps(self, epochs: float) -> int:
        """How many steps show `epochs` times as many images as there are samples."""
        return max(1, int(np.ceil(epochs * self.count / self.batch_size - 1e-9)))

    def at(self, step: int, part: tuple[int, int] = (0, 1)) -> SampleKeys:
        """The batch of a step, or the share of it that falls to rank `part[0]` of `part[1]`."""
        rows = share(self.batch_size, part)
        position = np.arange(rows.start, rows.stop) + step * self.batch_size
        epoch, place = position // self.count, position % self.count
        index, repeat = np.empty_like(place), np.empty_like(place)
        for e in np.unique(epoch):
            here = epoch == e
            index[here], repeat[here] = self._epoch(int(e), place[here])
        return SampleKeys(self.seed, epoch, index, repeat)

    def _epoch(self, epoch: int, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which samples stand at these places of an epoch, and for the how-manieth time."""
        if self.weights is not None:
            index, repeat = _drawn(self.seed, epoch, self.weights.astype(np.float64).tobytes(), self.repeats)
            return index[place], repeat[place]
        place, repeat = _views(place, self.repeats)
        if self.windows is not None:
            return self.windows.at(self.seed, epoch, place), repeat
        return _shuffled(self.seed, epoch, self.count)[place], repeat


# a batch touches two epochs at most; the next one may be read ahead
_shuffled = lru_cache(maxsize=4)(permutation)


@lru_cache(maxsize=4)
def _drawn(seed: int, epoch: int, weights: bytes, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    share = np.cumsum(np.frombuffer(weights))
    draws = uniform("balanced", seed, epoch, np.arange(len(share)))
    index = np.searchsorted(share / share[-1], draws, side="right").clip(max=len(share) - 1)
    index = index[_views(np.arange(len(share)), repeats)[0]]
    return index, _occurrence(index)


def _views(place: np.ndarray, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Which sample stands where, and which repeat of it: 0 1 0 1 2 3 2 3 … for two repeats.

    Samples take turns two by two, for neighbours in a batch are mixed (`mixup.py`): two views of one would stay as is.
    """
    block, within = np.divmod(place, 2 * repeats)
    return 2 * block + within % 2, within // 2


def _occurrence(index: np.ndarray) -> np.ndarray:
    """For each element, how many equal ones stand before it."""
    order = np.argsort(index, kind="stable")
    first = np.r_[True, np.diff(index[order]) != 0]
    start = np.maximum.accumulate(np.where(first, np.arange(len(index)), 0))
    count = np.empty_like(index)
    count[order] = np.arange(len(index)) - start
    return count
