"""The order of samples that lie in shards: mixed as widely as can be read, and still a pure function.

Chunks, which lie together on the disk, are shuffled by (seed, epoch); consecutive ones make a window of so many bytes;
within a window the samples are shuffled. So whoever reads the samples in order holds a window's worth of chunks at a
time, and every process can compute the sample at any position without reading anything before it. A set that is no
larger than a window is shuffled whole, in the very order that a folder of the same images has.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vitkit.data.dataset import Split
from vitkit.data.rng import uniform
from vitkit.data.shards.reader import Shards, underlying


@dataclass(frozen=True, eq=False)  # by identity, to be a key of the caches below
class Windows:
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
            index[here] = _shuffled(self, seed, epoch, int(w))[place[here] - (ends[w - 1] if w else 0)]
        return index


def windows_of(split: Split) -> Windows | None:
    """None: everything is as near as everything else, or it all fits into one window."""
    images, rows = underlying(split.images)
    if not isinstance(images, Shards):
        return None
    rows = np.arange(len(images)) if rows is None else rows
    if int(images.rows.size[rows].sum()) <= images.window:
        return None
    _, chunk = np.unique(images.chunks()[rows], return_inverse=True)
    members = np.argsort(chunk, kind="stable")
    starts = np.r_[0, np.cumsum(np.bincount(chunk))]
    sizes = np.bincount(chunk, images.rows.size[rows]).astype(np.int64)
    return Windows(members, starts, sizes, images.window)


@lru_cache(maxsize=4)
def _cut(windows: Windows, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The chunks in the order of this epoch, the window of each, and where in the epoch each window ends."""
    chunks = np.argsort(uniform("chunks", seed, epoch, np.arange(len(windows.sizes))), kind="stable")
    sizes = windows.sizes[chunks]
    _, window = np.unique((np.cumsum(sizes) - sizes) // windows.limit, return_inverse=True)
    ends = np.cumsum(np.bincount(window, np.diff(windows.starts)[chunks]).astype(np.int64))
    return chunks, window, ends


@lru_cache(maxsize=8)
def _shuffled(windows: Windows, seed: int, epoch: int, window: int) -> np.ndarray:
    chunks, of, _ = _cut(windows, seed, epoch)
    parts = [windows.members[windows.starts[c] : windows.starts[c + 1]] for c in chunks[of == window]]
    members = np.sort(np.concatenate(parts))
    return members[np.argsort(uniform("order", seed, epoch, members), kind="stable")]
