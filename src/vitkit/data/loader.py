"""Which sample comes when: a pure function of (seed, step).

The epochs are laid end to end into one stream of samples, and a step takes the next `batch` of them. So every batch is
full, every sample comes exactly once per epoch, and the state of the loader is one integer.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from vitkit.data.draws import Picks, permutation, uniform
from vitkit.errors import ConfigError


@dataclass(frozen=True)
class Plan:
    """`count` samples, shuffled anew in every epoch.

    `repeats`: repeated augmentation (Hoffer et al. 2020): each sample comes this many times close together, with other
    draws each time, and an epoch shows correspondingly fewer samples. `weights`: sample with replacement, this often.
    """

    count: int
    batch: int
    seed: int = 0
    repeats: int = 1
    weights: np.ndarray | None = field(default=None, compare=False)

    def steps(self, epochs: float) -> int:
        """How many steps show `epochs` times as many images as there are samples."""
        return max(1, int(np.ceil(epochs * self.count / self.batch - 1e-9)))

    def at(self, step: int, part: tuple[int, int] = (0, 1)) -> Picks:
        """The batch of a step, or the share of it that falls to rank `part[0]` of `part[1]`."""
        rank, ranks = part
        if self.batch % ranks:
            raise ConfigError(f"batch={self.batch} cannot be shared by {ranks} processes: use a multiple of {ranks}")
        share = self.batch // ranks
        position = np.arange(rank * share, (rank + 1) * share) + step * self.batch
        epoch, place = position // self.count, position % self.count
        index, copy = np.empty_like(place), np.empty_like(place)
        for e in np.unique(epoch):
            here = epoch == e
            index[here], copy[here] = (a[place[here]] for a in self._epoch(int(e)))
        return Picks(self.seed, epoch, index, copy)

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        if self.weights is not None:
            return _drawn(self.seed, epoch, self.weights.astype(np.float64).tobytes(), self.repeats)
        return _shuffled(self.seed, epoch, self.count, self.repeats)


@lru_cache(maxsize=4)  # a batch touches two epochs at most; the next one may be read ahead
def _shuffled(seed: int, epoch: int, count: int, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    place, copy = _views(count, repeats)
    return permutation(seed, epoch, count)[place], copy


@lru_cache(maxsize=4)
def _drawn(seed: int, epoch: int, weights: bytes, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    share = np.cumsum(np.frombuffer(weights))
    draws = uniform("balanced", seed, epoch, np.arange(len(share)))
    index = np.searchsorted(share / share[-1], draws, side="right").clip(max=len(share) - 1)
    index = index[_views(len(share), repeats)[0]]
    return index, _occurrence(index)


def _views(count: int, repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Which sample stands where, and for the how-manieth time: 0 1 0 1 2 3 2 3 … for two repeats.

    Samples take turns two by two, for neighbours in a batch are mixed (`mix.py`): two views of one would stay as is.
    """
    block, within = np.divmod(np.arange(count), 2 * repeats)
    return 2 * block + within % 2, within // 2


def _occurrence(index: np.ndarray) -> np.ndarray:
    """For each element, how many equal ones stand before it."""
    order = np.argsort(index, kind="stable")
    first = np.r_[True, np.diff(index[order]) != 0]
    start = np.maximum.accumulate(np.where(first, np.arange(len(index)), 0))
    count = np.empty_like(index)
    count[order] = np.arange(len(index)) - start
    return count
