"""Count the parameters and multiply-adds of a model, layer by layer.

Multiply-adds are those of the matrix products, attention included, plus five per element of a LayerNorm and three of an
RMSNorm. This is fvcore's convention, by which papers and timm state 17.58 GMACs for ViT-B/16.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vitkit.model.config import Pair, ViTConfig
from vitkit.model.dropout import Dropout
from vitkit.model.vit import ViT, create_model

_HIDDEN = (nn.Identity, Dropout)  # they do nothing in eval mode


@dataclass(frozen=True)
class LayerSummary:
    """One module: the shape of its output for a batch of one, its parameters and its multiply-adds."""

    path: str
    kind: str
    shape: tuple[int, ...]
    parameters: int
    macs: int


def summarize(
    config: ViTConfig, image_size: Pair | None = None, depth: int = 2, model_class: type[ViT] = ViT
) -> list[LayerSummary]:
    """Return a row per module down to `depth` levels, the complete model first. Runs on the meta device."""
    model = create_model(config, device="meta", model_class=model_class).eval()
    shapes: dict[str, tuple[int, ...]] = {}

    def record_shape(path: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            shapes[path] = tuple(output.shape)

        return hook

    for path, module in model.named_modules():
        module.register_forward_hook(record_shape(path))
    norms = {torch.ops.aten.native_layer_norm: _layer_norm_flops}
    with FlopCounterMode(display=False, custom_mapping=norms) as counter, torch.no_grad():
        model(torch.empty(1, config.in_channels, *(image_size or config.image_size), device="meta"))
    counts = counter.get_flop_counts()
    flops = {path.partition(".")[2]: sum(ops.values()) for path, ops in counts.items() if path != "Global"}
    for path, module in model.named_modules():
        if isinstance(module, nn.RMSNorm) and path in shapes:
            for part in _ancestors(path):
                flops[part] = flops.get(part, 0) + 2 * 3 * math.prod(shapes[path])
    rows = []
    for path, module in model.named_modules():
        if _level(path) > depth or isinstance(module, _HIDDEN):
            continue
        kind, shape, macs = type(module).__name__, shapes.get(path), flops.get(path, 0)
        if isinstance(module, nn.ModuleList):  # never called itself: its cost is the sum of its blocks
            kind, shape = f"{len(module)} × {type(module[0]).__name__}", shapes[f"{path}.0"]
            macs = sum(flops.get(f"{path}.{i}", 0) for i in range(len(module)))
        if shape is not None:
            parameters = sum(p.numel() for p in module.parameters())
            rows.append(LayerSummary(path, kind, shape, parameters, macs // 2))
    return rows


def totals(config: ViTConfig) -> LayerSummary:
    """Return the complete model in one row. All blocks cost the same, so depths one and two give every other depth."""
    one, two = (summarize(config.replace(depth=depth), depth=0)[0] for depth in (1, 2))
    more = config.depth - 1
    return dataclasses.replace(
        one,
        parameters=one.parameters + more * (two.parameters - one.parameters),
        macs=one.macs + more * (two.macs - one.macs),
    )


def _layer_norm_flops(shape: Any, *args: Any, **kwargs: Any) -> int:
    return 2 * 5 * math.prod(shape)


def _ancestors(path: str) -> list[str]:
    """Return the paths of a module and of all that contain it, the complete model last."""
    names = path.split(".")
    return [".".join(names[:end]) for end in range(len(names), -1, -1)]


def _level(path: str) -> int:
    return len(path.split(".")) if path else 0
