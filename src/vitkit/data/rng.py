"""Stateless random numbers: every draw of the data pipeline is a hash of its keys.

A draw depends on (seed, epoch, sample, repeat, purpose) and on nothing else. Any process can compute any sample's
draws at any time. The number of workers or ranks cannot change them, and there is no state to save.
"""

import zlib
from dataclasses import dataclass

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """Apply the finaliser of splitmix64: every input bit affects every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(*keys: int | str | np.ndarray) -> np.ndarray:
    """Return one number in [0, 1) per row of the broadcast keys. Equal keys give equal numbers."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is intended
        state = np.zeros((), dtype=np.uint64)
        for key in keys:
            number = zlib.crc32(key.encode()) if isinstance(key, str) else key
            state = _mix((state + _GOLDEN) ^ np.asarray(number).astype(np.uint64))
            state = _mix(state + _GOLDEN)
        return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(seed: int, epoch: int, count: int) -> np.ndarray:
    """Return the sample order of an epoch: a permutation of 0 … count - 1."""
    return np.argsort(uniform("order", seed, epoch, np.arange(count)), kind="stable")


@dataclass(frozen=True)
class SampleKeys:
    """The samples of one batch, and the keys of their random draws."""

    seed: int
    epoch: np.ndarray  # (B,) int64
    index: np.ndarray  # (B,) int64, into the split
    repeat: np.ndarray  # (B,) int64: zero-based repeat of this sample within the epoch

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, rows: slice | np.ndarray) -> "SampleKeys":
        return SampleKeys(self.seed, self.epoch[rows], self.index[rows], self.repeat[rows])

    def uniform(self, purpose: str, count: int | None = None) -> np.ndarray:
        """Return (B,) numbers in [0, 1) for one purpose, or (B, count) if `count` is given."""
        if count is None:
            return uniform(purpose, self.seed, self.epoch, self.index, self.repeat)
        keys = (k[:, None] for k in (self.epoch, self.index, self.repeat))
        return uniform(purpose, self.seed, *keys, np.arange(count))
