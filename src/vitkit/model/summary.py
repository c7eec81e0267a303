"""Counted, never quoted: parameters and multiply-adds of a model, layer by layer.

Multiply-adds are those of the matrix products, attention included, plus five per element of a LayerNorm: the
convention of fvcore, by which papers and timm state 17.58 GMACs for ViT-B/16.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitkit.model.config import Pair, ViTConfig
from vitkit.model.vit import create_model


@dataclass(frozen=True)
class Row:
    """One module: what it returns for a batch of one, what it holds, what it costs."""

    path: str
    kind: str
    shape: tuple[int, ...]
    parameters: int
    macs: int


def summarize(config: ViTConfig, image_size: Pair | None = None, depth: int = 2) -> list[Row]:
    """A row per module down to `depth` levels, the whole model first. Runs on the meta device: no memory, no time."""
    model = create_model(config, device="meta").eval()
    shapes: dict[str, tuple[int, ...]] = {}

    def note(path: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            shapes[path] = tuple(output.shape)

        return hook

    for path, module in model.named_modules():
        module.register_forward_hook(note(path))
    norms = {torch.ops.aten.native_layer_norm: _layer_norm_flops}
    with FlopCounterMode(display=False, custom_mapping=norms) as counter, torch.no_grad():
        model(torch.empty(1, config.in_channels, *(image_size or config.image_size), device="meta"))
    counts = counter.get_flop_counts()
    flops = {path.partition(".")[2]: sum(ops.values()) for path, ops in counts.items() if path != "Global"}
    return [
        Row(path, type(module).__name__, shapes[path], _parameters(module), flops.get(path, 0) // 2)
        for path, module in model.named_modules()
        if path in shapes and _level(path) <= depth and not isinstance(module, nn.Identity)
    ]


def totals(config: ViTConfig) -> Row:
    return summarize(config, depth=0)[0]


def _layer_norm_flops(shape: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * 5 * math.prod(shape)


def _level(path: str) -> int:
    return len(path.split(".")) if path else 0


def _parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
