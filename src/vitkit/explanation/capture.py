"""Read the attention of every layer during one forward, through the model's capture point (model/sdpa.py).

Layers are numbered as the blocks; attention pooling comes after the last block.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

import torch
from torch import Tensor

from vitkit.model import ViT
from vitkit.model.attention import attention_weights

T = TypeVar("T")


@torch.no_grad()
def capture_attention(
    model: ViT, images: Tensor, read: Callable[[Tensor, Tensor], T], layers: Iterable[int] | None = None
) -> tuple[dict[int, T], Tensor]:
    """Return `read(q, k)` of the given layers (default: all) and the logits.

    `q` and `k` (b, h, t, e) are what the kernel receives: normalised and rotated. `read` runs without autocast.
    """
    wanted, number = None if layers is None else set(layers), count()
    found: dict[int, T] = {}

    def capture(q: Tensor, k: Tensor) -> None:
        layer = next(number)
        if wanted is None or layer in wanted:
            with torch.autocast(q.device.type, enabled=False):
                found[layer] = read(q, k)

    return found, model(images, capture)


def differentiable_attention(model: ViT, images: Tensor) -> tuple[list[Tensor], Tensor]:
    """Return the weights (b, h, q, t) of every layer, and logits that are computed from them.

    The gradient of the logits with respect to the weights can be taken, also if the model is frozen.
    """
    found: list[Tensor] = []

    def capture(q: Tensor, k: Tensor) -> Tensor:
        found.append(attention_weights(q, k))
        return found[-1]

    with torch.inference_mode(False), torch.enable_grad():
        return found, model(images.clone().requires_grad_(), capture)
