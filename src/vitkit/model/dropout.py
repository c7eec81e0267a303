"""Dropout (Srivastava et al. 2014) and stochastic depth (Huang et al. 2016): drop at random, scale up the rest.

Without `seeds`, torch's generator draws. With them, what is dropped is a hash of the image's seed and the position.
Then an image loses the same activations in any micro-batch, thread or process, compiled or not, and when a block is
recomputed. Every layer needs seeds of its own.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn


class Dropout(nn.Module):
    """Drops single activations."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.seeds: Int[Tensor, " b"] | None = None  # int32, of the images of the next forward

    @property
    def active(self) -> bool:
        return self.training and self.rate > 0

    def forward(self, x: Float[Tensor, "b *rest"]) -> Float[Tensor, "b *rest"]:
        if not self.active:
            return x
        if self.seeds is None:
            return F.dropout(x, self.rate)
        return x * keep_mask(self.seeds, x.shape[1:], self.rate) / (1 - self.rate)


class DropPath(Dropout):
    """Drops the branch of a block for single images."""

    def forward(self, x: Float[Tensor, "b t d"]) -> Float[Tensor, "b t d"]:
        if not self.active:
            return x
        if self.seeds is None:
            keep = x.new_empty(x.shape[0], 1, 1).bernoulli_(1 - self.rate)
        else:
            keep = keep_mask(self.seeds, (1, 1), self.rate)
        return x * keep / (1 - self.rate)


def dropout_layers(model: nn.Module) -> list[Dropout]:
    """Return all layers of the model that drop something in training, in a fixed order."""
    return [layer for layer in model.modules() if isinstance(layer, Dropout) and layer.rate > 0]


def keep_mask(seeds: Int[Tensor, " b"], shape: Sequence[int], rate: float) -> Bool[Tensor, "b *shape"]:
    """Return False with probability `rate` and True otherwise, for each image and position."""
    positions = torch.arange(math.prod(shape), dtype=torch.int32, device=seeds.device)
    bits = _mix(_mix(positions) ^ seeds[:, None])  # uniform in [-2³¹, 2³¹)
    lowest_kept = min(round((rate - 0.5) * 2**32), 2**31 - 1)
    return (bits >= lowest_kept).view(-1, *shape)


def _mix(x: Tensor) -> Tensor:
    """Hash int32 numbers by the multiplications of MurmurHash3: every input bit affects the highest output bits."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * -2048144789  # the mask makes it a logical shift; 0x85ebca6b
    return (x ^ ((x >> 13) & 0x7FFFF)) * -1028477387  # 0xc2b2ae35
