"""A data set: index → (encoded image, label), in named splits.

Nothing is decoded here. An image is either the bytes of an image file or a uint8 array (H, W) or (H, W, C);
`preprocess.py` makes both into what the model sees.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

Encoded = bytes | np.ndarray


class Images(Protocol):
    """A sequence of encoded images that need not be in memory."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Encoded: ...
    def name(self, index: int, /) -> str:
        """What to call the image in a message: its path, or its place in the file."""
        ...


@dataclass(frozen=True)
class Split:
    images: Images
    labels: np.ndarray  # int64, one class index per image

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, indices: np.ndarray) -> "Split":
        return Split(Subset(self.images, indices), self.labels[indices])


@dataclass(frozen=True)
class Subset:
    images: Images
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Encoded:
        return self.images[int(self.indices[index])]

    def name(self, index: int, /) -> str:
        return self.images.name(int(self.indices[index]))


@dataclass(frozen=True)
class Arrays:
    """Images of one shape, in memory: (N, H, W) or (N, H, W, C), uint8."""

    pixels: np.ndarray
    origin: str

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int, /) -> np.ndarray:
        return self.pixels[index]

    def name(self, index: int, /) -> str:
        return f"{self.origin}[{index}]"


@dataclass(frozen=True)
class Dataset:
    name: str
    class_names: Sequence[str]
    splits: Mapping[str, Split]  # "train", "val", "test": at least one of them
    notes: Sequence[str] = field(default_factory=tuple)  # what was decided on the way, such as a split that was made
