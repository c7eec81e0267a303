"""Read and write config.json and preprocessor_config.json of transformers."""

from collections.abc import Mapping
from typing import Any

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo, ViTConfig
from vitkit.weights.metadata import SidecarConfig, as_pair

# their field → ours, with the same value
_FIELDS = {
    "num_attention_heads": "heads", "layer_norm_eps": "norm_eps", "image_size": "image_size",
    "patch_size": "patch_size", "hidden_size": "width", "num_hidden_layers": "depth",
    "num_channels": "in_channels", "qkv_bias": "qkv_bias",
}  # fmt: skip
_SIZES = ("image_size", "patch_size")
_ACTS = {"gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "quick_gelu": "quick_gelu"}
# model_type → the defaults of transformers for what the tensors do not show: activation, epsilon, heads
_DEFAULTS = {
    "vit": ("gelu", 1e-12, 12), "vit_mae": ("gelu", 1e-12, 12), "vit_msn": ("gelu", 1e-6, 12),
    "ijepa": ("gelu", 1e-12, 12), "deit": ("gelu", 1e-12, 12), "dinov2": ("gelu", 1e-6, 12),
    "dinov2_with_registers": ("gelu", 1e-6, 12), "dinov3_vit": ("gelu", 1e-5, 6),
    "clip": ("quick_gelu", 1e-5, 12), "clip_vision_model": ("quick_gelu", 1e-5, 12),
    "siglip": ("gelu_pytorch_tanh", 1e-6, 12), "siglip_vision_model": ("gelu_pytorch_tanh", 1e-6, 12),
    "siglip2": ("gelu_pytorch_tanh", 1e-6, 12), "siglip2_vision_model": ("gelu_pytorch_tanh", 1e-6, 12),
}  # fmt: skip
KINDS = tuple(_DEFAULTS)
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
# layout → (model_type, class of the backbone, class of the classifier)
_CLASSES = {
    "hf-vit": ("vit", "ViTModel", "ViTForImageClassification"),
    "hf-deit": ("deit", "DeiTModel", "DeiTForImageClassificationWithTeacher"),
    "hf-dinov2": ("dinov2", "Dinov2Model", "Dinov2ForImageClassification"),
    "hf-dinov2-registers": (
        "dinov2_with_registers",
        "Dinov2WithRegistersModel",
        "Dinov2WithRegistersForImageClassification",
    ),
    "hf-dinov3": ("dinov3_vit", "DINOv3ViTModel", ""),
}


def read_config(values: Mapping[str, Any], preprocessor: Mapping[str, Any] | None, where: object) -> SidecarConfig:
    kind = values.get("model_type")
    if kind not in KINDS:
        raise WeightsError(
            f"{where}: transformers' model_type {kind!r} is not supported; supported are {', '.join(KINDS)}"
        )
    names = values.get("id2label") or {}
    values = values.get("vision_config") or {} if kind in ("clip", "siglip", "siglip2") else values
    config = {ours: values[theirs] for theirs, ours in _FIELDS.items() if values.get(theirs) is not None}
    config |= {name: as_pair(config[name]) for name in _SIZES if name in config}
    default_act, eps, heads = _DEFAULTS[kind]
    config = {"norm_eps": eps, "heads": heads, **config}
    act = values.get("hidden_act", default_act)
    if act in _ACTS:
        config["mlp"] = _ACTS[act]
    elif act != "silu":
        raise WeightsError(f"{where}: hidden_act={act!r} is not supported; supported are {', '.join(_ACTS)}")
    if kind == "dinov3_vit":
        config.pop("qkv_bias", None)
        config["rope_base"] = float(values.get("rope_theta", 100.0))
    if kind.startswith("siglip2"):
        config |= {"position_resample": "bilinear", "position_antialias": True}
        preprocessor = None  # its sizes follow each image
    labels = tuple(str(names[key]) for key in sorted(names, key=int)) if all(map(_is_index, names)) else ()
    if labels == tuple(f"LABEL_{i}" for i in range(len(labels))):
        labels = ()  # placeholders, not names
    return SidecarConfig(config, labels, _read_preprocessor(preprocessor, where) if preprocessor else None)


def _is_index(key: Any) -> bool:
    return str(key).isascii() and str(key).isdecimal()


def _read_preprocessor(p: Mapping[str, Any], where: object) -> Preprocess:
    size, crop = p.get("size", 224), p.get("crop_size")
    crop = _sides(crop) if p.get("do_center_crop") and crop is not None else None
    if isinstance(size, Mapping) and "shortest_edge" in size:
        target, fit = (size["shortest_edge"],) * 2, "crop"
    elif p.get("do_center_crop") and isinstance(size, int):
        target, fit = (size, size), "crop"
    else:
        target, fit = _sides(size), "squash"
    final = crop or target
    normal = p.get("do_normalize", True)
    if abs(p.get("rescale_factor", 1 / 255) - 1 / 255) > 1e-6:
        raise WeightsError(f"{where}: rescale_factor={p['rescale_factor']} is not supported; only 1/255 is")
    return Preprocess.from_dict(
        {
            "size": final,
            "fit": fit,
            "crop_fraction": min(final[0] / target[0], 1.0),
            "interpolation": _RESAMPLE.get(p.get("resample", 2), "bilinear"),
            "mean": tuple(p.get("image_mean", (0.5,) * 3)) if normal else (0.0,) * 3,
            "std": tuple(p.get("image_std", (0.5,) * 3)) if normal else (1.0,) * 3,
        }
    )


def _sides(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        return (size["height"], size["width"]) if "height" in size else (size["shortest_edge"],) * 2
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def write_config(layout: str, config: ViTConfig, info: ModelInfo) -> dict[str, Any]:
    kind, body, classifier = _CLASSES[layout]
    acts = {ours: theirs for theirs, ours in reversed(_ACTS.items())} | {"swiglu": "silu"}
    values: dict[str, Any] = {
        "model_type": kind,
        "architectures": [classifier if config.num_classes else body],
        **{theirs: _plain(getattr(config, ours)) for theirs, ours in _FIELDS.items()},
        "hidden_act": acts[config.mlp],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "dtype": "float32",
        **_EXTRA[kind](config),
    }
    if config.num_classes:
        names = info.class_names or [f"LABEL_{i}" for i in range(config.num_classes)]
        values["id2label"] = {str(i): name for i, name in enumerate(names)}
        values["label2id"] = {name: i for i, name in enumerate(names)}
    return values


def _dinov2(config: ViTConfig) -> dict[str, Any]:
    """Return a DINOv2 config. It has an integer ratio instead of the MLP's width; a gated MLP uses two thirds of it."""
    gated = config.mlp == "swiglu"
    width_at = _gated_width if gated else int.__mul__
    ratio = next((r for r in range(1, 33) if width_at(config.width, r) == config.mlp_width), None)
    if ratio is None:
        raise WeightsError(f"hf-dinov2 cannot store a model with mlp_width={config.mlp_width} at width={config.width}")
    extra: dict[str, Any] = {"mlp_ratio": ratio, "use_swiglu_ffn": gated, "layerscale_value": 1.0}
    extra |= {"hidden_act": "gelu"} if gated else {}
    return extra | ({"num_register_tokens": config.registers} if config.registers else {})


def _gated_width(width: int, ratio: int) -> int:
    return (int(width * ratio * 2 / 3) + 7) // 8 * 8


def _dinov3(config: ViTConfig) -> dict[str, Any]:
    return {
        "intermediate_size": config.mlp_width,
        "num_register_tokens": config.registers,
        "use_gated_mlp": config.mlp == "swiglu",
        "image_size": config.image_size[0],
        "patch_size": config.patch_size[0],
        "query_bias": config.qkv_bias, "key_bias": config.qkv_bias, "value_bias": config.qkv_bias,
        "layerscale_value": 1.0,
        "rope_theta": config.rope_base,
        "attention_dropout": config.attention_dropout,
    }  # fmt: skip


def _plain_mlp(config: ViTConfig) -> dict[str, Any]:
    return {"intermediate_size": config.mlp_width}


_EXTRA = {"vit": _plain_mlp, "deit": _plain_mlp, "dinov2": _dinov2, "dinov2_with_registers": _dinov2,
          "dinov3_vit": _dinov3}  # fmt: skip


def _plain(value: Any) -> Any:
    return (value[0] if value[0] == value[1] else list(value)) if isinstance(value, tuple) else value


def write_preprocessor(p: Preprocess) -> dict[str, Any] | None:
    """Return the settings of the equivalent image processor, or None if transformers has none."""
    if p.fit == "pad" or p.channels != 3 or p.range is not None:
        return None
    target = [int(side / p.crop_fraction) for side in p.size]
    sides = {"height": p.size[0], "width": p.size[1]}
    if p.fit == "crop" and p.size[0] != p.size[1]:
        return None
    common = {
        "do_resize": True,
        "resample": {name: number for number, name in _RESAMPLE.items()}[p.interpolation],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(p.mean),
        "image_std": list(p.std),
    }
    if p.fit == "squash" and p.crop_fraction == 1:
        return {"image_processor_type": "ViTImageProcessor", "size": sides, **common}
    edge = {"shortest_edge": target[0]} if p.fit == "crop" else {"height": target[0], "width": target[1]}
    return {
        "image_processor_type": "BitImageProcessor",
        "size": edge,
        "do_center_crop": True,
        "crop_size": sides,
        **common,
    }
