"""Attention seen from outside: queries, keys and values as the model hands them to the fused kernel.

The model is not touched and no projection is computed twice: a mode that is in force while the forward runs meets
each call of `scaled_dot_product_attention`. It holds for every variant, for what reaches the kernel is already
normed and rotated. Calls come in the order of the blocks; that of attention pooling is the last.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vitkit.model import ViT
from vitkit.model.attention import attention_weights

T = TypeVar("T")


def read_attention(
    model: ViT, images: Tensor, read: Callable[[Tensor, Tensor], T], layers: Iterable[int] | None = None
) -> tuple[dict[int, T], Tensor]:
    """What `read(q, k)` makes of each of the layers asked for, and the logits; the kernel runs as always."""
    wanted = None if layers is None else set(layers)
    found: dict[int, T] = {}

    def beside(layer: int, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
        if wanted is None or layer in wanted:
            found[layer] = read(q, k)
        return F.scaled_dot_product_attention(q, k, v, **how)

    with torch.no_grad(), _Instead(beside):
        return found, model(images)


def open_attention(model: ViT, images: Tensor) -> tuple[list[Tensor], Tensor]:
    """All weights (b, h, q, t) of each layer, and logits whose gradient with respect to them can be taken."""
    found: list[Tensor] = []

    def plain(layer: int, q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
        found.append(attention_weights(q, k))
        return found[-1].to(v.dtype) @ v

    with torch.inference_mode(False), torch.enable_grad(), _Instead(plain):
        logits = model(images.clone().requires_grad_())  # so that a frozen model has gradients too
    return found, logits


class _Instead(TorchFunctionMode):
    """Calls the given function, with a running number, where the model calls the kernel."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function, self.calls = function, 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.calls += 1
        return self.function(self.calls - 1, *args, **(kwargs or {}))
