"""Chance as a pure function: every random number of the data path is a hash of who asks for it.

A draw depends on (seed, epoch, sample, copy, purpose) and on nothing that happened before. So any process can compute
any sample's draws at any time: the number of workers or ranks cannot change them, and there is no state to save.
"""

import zlib
from dataclasses import dataclass

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every input bit moves every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(*keys: int | str | np.ndarray) -> np.ndarray:
    """Numbers in [0, 1), one per row of the broadcast keys: equal keys, equal numbers."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is meant
        state = np.zeros((), dtype=np.uint64)
        for key in keys:
            number = zlib.crc32(key.encode()) if isinstance(key, str) else key
            state = _mix((state + _GOLDEN) ^ np.asarray(number).astype(np.uint64))
            state = _mix(state + _GOLDEN)
        return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(seed: int, epoch: int, count: int) -> np.ndarray:
    """The order of an epoch."""
    return np.argsort(uniform("order", seed, epoch, np.arange(count)), kind="stable")


@dataclass(frozen=True)
class Picks:
    """The samples of one batch, and the names under which they draw."""

    seed: int
    epoch: np.ndarray  # (B,) int64
    index: np.ndarray  # (B,) int64, into the split
    copy: np.ndarray  # (B,) int64: the how-manieth time in this epoch that this sample comes

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: slice | np.ndarray) -> "Picks":
        return Picks(self.seed, self.epoch[rows], self.index[rows], self.copy[rows])

    def uniform(self, purpose: str, count: int | None = None) -> np.ndarray:
        """(B,) numbers in [0, 1) for one purpose, or (B, count) of them."""
        if count is None:
            return uniform(purpose, self.seed, self.epoch, self.index, self.copy)
        keys = (k[:, None] for k in (self.epoch, self.index, self.copy))
        return uniform(purpose, self.seed, *keys, np.arange(count))
