"""Infer the config of a model from the shapes of its tensors; its files, its library or the caller give the rest."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vitkit.errors import ConfigError, WeightsError
from vitkit.model import ViTConfig
from vitkit.weights.metadata import as_pair

# Axes of the tensors whose shapes are used
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
_REQUIRED = list(_AXES)[:4]

Tensors = Mapping[str, Tensor]
Values = dict[str, Any]


def infer_config(
    tensors: Tensors,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    where: object,
    heads: Mapping[int, int] = {},  # never changed
    required: Sequence[str] = (),
) -> tuple[ViTConfig, list[str]]:
    """Return the config that tensor shapes, `given` and `defaults` define, and a line for each assumption.

    `given` comes from sidecar files or the caller. `defaults` come from the code of the layout's library, and so does
    the number of `heads` at each width. Raise if a `required` value is not given.
    """
    check_complete(tensors, where)
    shown = _from_shapes(tensors)
    given = {
        key: as_pair(value) if key in ("image_size", "patch_size", "rope_grid") else value
        for key, value in given.items()
        if key != "mlp" or "mlp" not in shown  # a gated MLP shows in the shapes, its activation does not matter
    }
    for key in shown.keys() & given.keys():
        if given[key] != shown[key]:
            raise WeightsError(f"{where}: the tensors show {key}={shown[key]}, but {key}={given[key]} is given")
    known = {**shown, **given}
    guesses = [f"{key}={value}" for key, value in defaults.items() if key not in known]
    assumed = [f"{', '.join(guesses)} (fixed in this layout's code; the tensors do not show it)"] if guesses else []
    values = {"pooling": _default_pooling(tensors), **defaults, **known}
    if absent := [key for key in required if key not in values and not (key == "heads" and shown["qk_norm"])]:
        raise WeightsError(f"{where}: the tensors do not show {', '.join(absent)}: {_how_to_give(absent[0])}")
    if "pos_embed" in tensors:
        values.setdefault("position", "learned")
    if "position" not in values or ("learned" in values["position"] and "pos_embed" not in tensors):
        raise WeightsError(f"{where} has no position table: {_how_to_give('position')}, such as position=sincos")
    values |= _heads(tensors, values, heads, assumed, where)
    values |= _grid(tensors, values, assumed, where)
    try:
        return ViTConfig.from_dict(values), assumed
    except ConfigError as error:
        raise WeightsError(f"{where}: {error}") from error


def _how_to_give(key: str) -> str:
    return f"add the config.json of the weights, or give it (config={{'{key}': …}}, `vitkit convert … --set {key}=…`)"


def _default_pooling(tensors: Tensors) -> str:
    """Return the pooling of models whose library has only one for such tensors."""
    if "attn_pool.latent" in tensors:
        return "attention_patches" if "cls_token" in tensors or "reg_token" in tensors else "attention"
    return "mean" if "fc_norm.weight" in tensors or "cls_token" not in tensors else "cls"


def check_complete(tensors: Tensors, where: object) -> None:
    """Raise if a tensor that every ViT has is missing or has another number of axes, or if a block is missing."""
    if absent := next((key for key in _REQUIRED if key not in tensors), None):
        raise WeightsError(f"{where} is incomplete: {absent}, which every ViT has, is missing")
    for key, axes in _AXES.items():
        if key in tensors and tensors[key].ndim != axes:
            raise WeightsError(f"{where}: {key} is {tuple(tensors[key].shape)}, expected {axes} axes")
    numbers = {int(key.split(".")[1]) for key in tensors if key.startswith("blocks.")}
    if gap := next((i for i in range(len(numbers)) if i not in numbers), None):
        raise WeightsError(f"{where} is incomplete: it has a block {max(numbers)} but no block {gap}")


def _from_shapes(tensors: Tensors) -> Values:
    width, channels, *patch = tensors["patch_embed.proj.weight"].shape
    mlp_width = tensors["blocks.0.mlp.fc2.weight"].shape[1]
    classes, pooled_width = tensors["head.weight"].shape if "head.weight" in tensors else (0, width)
    found: Values = {
        "patch_size": tuple(patch),
        "in_channels": channels,
        "width": width,
        "depth": len({key.split(".")[1] for key in tensors if key.startswith("blocks.")}),
        "mlp_width": mlp_width,
        "class_token": "cls_token" in tensors,
        "distillation": "dist_token" in tensors,
        "registers": tensors["reg_token"].shape[1] if "reg_token" in tensors else 0,
        "patch_norm": "patch_embed.norm.weight" in tensors,
        "pre_norm": "norm_pre.weight" in tensors,
        "norm": "layer" if any(key.endswith(".norm1.bias") for key in tensors) else "rms",
        "sub_norm": _sub_norm(tensors),
        "qkv_bias": "blocks.0.attn.qkv.bias" in tensors,
        "qk_norm": "blocks.0.attn.q_norm.weight" in tensors,
        "head_hidden": tensors["pre_logits.fc.weight"].shape[0] if "pre_logits.fc.weight" in tensors else 0,
        "num_classes": classes,
    }
    if "blocks.0.ls1.gamma" in tensors:
        found["layer_scale"] = 1.0  # the initial value only matters for training from scratch
    if tensors["blocks.0.mlp.fc1.weight"].shape[0] == 2 * mlp_width:
        found["mlp"] = "swiglu"
    if "fc_norm.weight" in tensors:
        found["final_norm"] = "pooled"
    if "attn_pool.mlp.fc1.weight" in tensors:
        pool_mlp_width = tensors["attn_pool.mlp.fc1.weight"].shape[0]
        found["pool_mlp_width"] = 0 if pool_mlp_width == mlp_width else pool_mlp_width
    if pooled_width == 2 * width and not found["head_hidden"]:
        found["pooling"] = "cls_mean"
    return found


def _sub_norm(tensors: Tensors) -> str:
    if "blocks.0.mlp.norm.weight" not in tensors:
        return "none"
    return "all" if "blocks.0.attn.norm.weight" in tensors else "mlp"


def _heads(tensors: Tensors, values: Values, published: Mapping[int, int], assumed: list[str], where: object) -> Values:
    inner, width = tensors["blocks.0.attn.qkv.weight"].shape[0] // 3, values["width"]
    heads = values.get("heads")
    if heads is None and values["qk_norm"]:
        heads = inner // max(tensors["blocks.0.attn.q_norm.weight"].shape[0], 1)
    if heads is None and inner == width and width in published:
        heads = published[width]
        assumed.append(f"heads={heads} (as in all published models of width {width}; the tensors do not show it)")
    if heads is None:
        raise WeightsError(f"{where}: the tensors do not show the number of heads: {_how_to_give('heads')}")
    if not isinstance(heads, int) or heads < 1 or inner % heads:
        raise WeightsError(f"{where}: heads={heads} does not divide the {inner} rows of the queries")
    return {"heads": heads, "head_width": inner // heads}


def _grid(tensors: Tensors, values: Values, assumed: list[str], where: object) -> Values:
    """Return the config values of the image size and of the class token's row in the position table."""
    patch, size = values["patch_size"], values.get("image_size")
    if min(patch) < 1:
        raise WeightsError(f"{where}: a patch of {patch[0]}×{patch[1]} pixels is empty")
    if "pos_embed" not in tensors:
        if size is None:
            size = tuple(p * max(224 // p, 1) for p in patch)
            assumed.append(f"image_size={size} (the model has no position table, so any size works)")
        return {"image_size": size}
    rows, classes = tensors["pos_embed"].shape[1], int(values["class_token"]) + int(values["distillation"])
    for prefix in dict.fromkeys((classes, 0, classes + values["registers"])):
        side = math.isqrt(max(rows - prefix, 0))
        grid = (size[0] // patch[0], size[1] // patch[1]) if size else (side, side)
        if grid[0] * grid[1] == rows - prefix and grid[0]:
            covered = (grid[0] * patch[0], grid[1] * patch[1])
            fitting = {"image_size": size or covered, "class_position": bool(prefix and classes)}
            return fitting if size in (None, covered) else {**fitting, "drop_remainder": True}
    problem = f"does not fit images of {size[0]}×{size[1]}" if size else "is not a square grid: give its image_size"
    raise WeightsError(f"{where}: the position table of {rows} rows {problem}")
