"""Counted, never quoted: parameters and multiply-adds of a model, layer by layer.

Multiply-adds are those of the matrix products, attention included, plus five per element of a LayerNorm: the
convention of fvcore, by which papers and timm state 17.58 GMACs for ViT-B/16.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitkit.model.block import DropPath
from vitkit.model.config import Pair, ViTConfig
from vitkit.model.vit import create_model

_SILENT = (nn.Identity, nn.Dropout, DropPath)  # they change nothing when the model is used


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
    rows = []
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList):  # never called itself: it costs what its blocks cost
            macs = sum(flops.get(f"{path}.{i}", 0) for i in range(len(module))) // 2
            rows.append(
                Row(path, f"{len(module)} × {type(module[0]).__name__}", shapes[f"{path}.0"], _parameters(module), macs)
            )
        elif path in shapes and not isinstance(module, _SILENT):
            rows.append(Row(path, type(module).__name__, shapes[path], _parameters(module), flops.get(path, 0) // 2))
    return [row for row in rows if _level(row.path) <= depth]


def totals(config: ViTConfig) -> Row:
    """The whole model in one row. All blocks are alike, so one and two of them tell what the rest will add."""
    one, two = (summarize(config.replace(depth=depth), depth=0)[0] for depth in (1, 2))
    more = config.depth - 1
    return dataclasses.replace(
        one,
        parameters=one.parameters + more * (two.parameters - one.parameters),
        macs=one.macs + more * (two.macs - one.macs),
    )


def _layer_norm_flops(shape: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * 5 * math.prod(shape)


def _level(path: str) -> int:
    return len(path.split(".")) if path else 0


def _parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
