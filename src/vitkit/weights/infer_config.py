"""What a model must be, from the shapes of its tensors in our names; the rest from a file beside them, or assumed."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from vitkit.errors import ConfigError, WeightsError
from vitkit.model import ViTConfig
from vitkit.model.variants import SIZES
from vitkit.weights.metadata import square

# No tensor shows the heads, but published models of a width have all the same number; 1536 is DINOv2's giant.
HEADS = {size.width: size.heads for size in SIZES.values()} | {1536: 24}
# What has to have how many axes before anything is read off it
_AXES = {
    "patch_embed.proj.weight": 4,
    "blocks.0.attn.qkv.weight": 2,
    "blocks.0.mlp.fc1.weight": 2,
    "blocks.0.mlp.fc2.weight": 2,
    "blocks.0.attn.q_norm.weight": 1,
    "head.weight": 2,
    "pre_logits.fc.weight": 2,
    "reg_token": 3,
    "pos_embed": 3,
}
_NEEDED = list(_AXES)[:4]

Tensors = Mapping[str, Tensor]
Values = dict[str, Any]


def infer_config(
    tensors: Tensors, told: Mapping[str, Any], habits: Mapping[str, Any], where: object
) -> tuple[ViTConfig, list[str]]:
    """The config, and what of it is assumed.

    `told` is what a file beside the weights, or the caller, says of it; `habits` what the layout's code does.
    """
    shown = _from_shapes(tensors, where)
    told = {key: square(value) if key in ("image_size", "patch_size") else value for key, value in told.items()}
    if "pos_embed" not in tensors and "position" not in habits:
        habits = {**habits, "position": "none"}
    told = {
        key: value for key, value in told.items() if key != "mlp" or "mlp" not in shown
    }  # a gate shows, its kind not
    for key in shown.keys() & told.keys():
        if told[key] != shown[key]:
            raise WeightsError(f"{where}: the tensors say {key}={shown[key]}, but {key}={told[key]} is given")
    known = {**shown, **told}
    guesses = [f"{key}={value}" for key, value in habits.items() if key not in known]
    assumed = [f"{', '.join(guesses)}: as the code of this layout has it; no tensor shows it"] if guesses else []
    values = {**habits, **known}
    values |= _heads(tensors, values, assumed, where)
    values |= _grid(tensors, values, assumed, where)
    try:
        return ViTConfig.from_dict(values), assumed
    except ConfigError as error:
        raise WeightsError(f"{where}: {error}") from error


def _from_shapes(tensors: Tensors, where: object) -> Values:
    if lacks := next((key for key in _NEEDED if key not in tensors), None):
        raise WeightsError(f"{where} lacks {lacks}, which every ViT has: the checkpoint is not complete")
    for key, axes in _AXES.items():
        if key in tensors and tensors[key].ndim != axes:
            raise WeightsError(f"{where}: {key} is {tuple(tensors[key].shape)}, expected {axes} axes")
    numbers = {int(key.split(".")[1]) for key in tensors if key.startswith("blocks.")}
    if gap := next((i for i in range(len(numbers)) if i not in numbers), None):
        raise WeightsError(f"{where} has a block {max(numbers)} but no block {gap}: the checkpoint is not complete")
    width, channels, *patch = tensors["patch_embed.proj.weight"].shape
    mlp_width = tensors["blocks.0.mlp.fc2.weight"].shape[1]
    classes, seen = tensors["head.weight"].shape if "head.weight" in tensors else (0, width)
    found: Values = {
        "patch_size": tuple(patch),
        "in_channels": channels,
        "width": width,
        "depth": len(numbers),
        "mlp_width": mlp_width,
        "class_token": "cls_token" in tensors,
        "distillation": "dist_token" in tensors,
        "registers": tensors["reg_token"].shape[1] if "reg_token" in tensors else 0,
        "pre_norm": "norm_pre.weight" in tensors,
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "qk_norm": "blocks.0.attn.q_norm.weight" in tensors,
        "final_norm": "pooled" if "fc_norm.weight" in tensors else "tokens",
        "head_hidden": tensors["pre_logits.fc.weight"].shape[0] if "pre_logits.fc.weight" in tensors else 0,
        "num_classes": classes,
    }
    if "blocks.0.ls1.gamma" in tensors:
        found["layer_scale"] = 1.0  # only where training starts anew does the number matter
    if tensors["blocks.0.mlp.fc1.weight"].shape[0] == 2 * mlp_width:
        found["mlp"] = "swiglu"
    if "attn_pool.latent" in tensors:
        found["pooling"] = "attention"
    elif seen == 2 * width and not found["head_hidden"]:
        found["pooling"] = "cls_mean"
    elif "fc_norm.weight" in tensors or "cls_token" not in tensors:
        found["pooling"] = "mean"
    return found


def _heads(tensors: Tensors, values: Values, assumed: list[str], where: object) -> Values:
    inner, width = tensors["blocks.0.attn.qkv.weight"].shape[0] // 3, values["width"]
    heads = values.get("heads")
    if heads is None and values["qk_norm"]:
        heads = inner // max(tensors["blocks.0.attn.q_norm.weight"].shape[0], 1)
    if heads is None and inner == width and (width in HEADS or width % 64 == 0):
        heads = HEADS.get(width, width // 64)
        assumed.append(f"heads={heads}: as published models of width {width} have; no tensor shows it")
    if heads is None:
        raise WeightsError(f"{where}: no tensor shows the number of heads: give it, such as heads={inner // 32 or 1}")
    if not isinstance(heads, int) or heads < 1 or inner % heads:
        raise WeightsError(f"{where}: {heads} heads do not divide the {inner} rows of the queries")
    return {"heads": heads, "head_width": inner // heads}


def _grid(tensors: Tensors, values: Values, assumed: list[str], where: object) -> Values:
    """The image size, and whether the class token has a row of its own in the position table."""
    patch, size = values["patch_size"], values.get("image_size")
    if min(patch) < 1:
        raise WeightsError(f"{where}: patches of {patch[0]}×{patch[1]} pixels are none")
    if "pos_embed" not in tensors:
        if size is None:
            size = tuple(p * max(224 // p, 1) for p in patch)
            assumed.append(f"image_size={size}: without a position table the model takes any size")
        return {"image_size": size}
    rows, classes = tensors["pos_embed"].shape[1], int(values["class_token"]) + int(values["distillation"])
    for prefix in dict.fromkeys((classes, 0, classes + values["registers"])):
        side = math.isqrt(max(rows - prefix, 0))
        grid = (size[0] // patch[0], size[1] // patch[1]) if size else (side, side)
        if grid[0] * grid[1] == rows - prefix and grid[0]:
            fitting = (grid[0] * patch[0], grid[1] * patch[1])
            return {"image_size": fitting, "class_position": bool(prefix and classes)}
    said = f"does not fit images of {size[0]}×{size[1]}" if size else "is no square grid: give its image_size"
    raise WeightsError(f"{where}: the position table of {rows} rows {said}")
