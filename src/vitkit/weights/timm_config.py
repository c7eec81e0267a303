"""Read and write config.json of a timm hub folder."""

from collections.abc import Mapping
from typing import Any

from vitkit.data.preprocess import Preprocess
from vitkit.model import ModelInfo, ViTConfig
from vitkit.weights.metadata import SidecarConfig, as_pair

_CROP_MODES = {"center": "crop", "squash": "squash", "border": "pad"}
_POOLS = {"token": "cls", "avg": "mean", "map": "attention"}
_ACTS = {"gelu": "gelu", "gelu_tanh": "gelu_tanh", "quick_gelu": "quick_gelu"}


def read_config(values: Mapping[str, Any]) -> SidecarConfig:
    cfg, arguments = values.get("pretrained_cfg") or values, values.get("model_args") or {}
    name = str(values.get("architecture", ""))
    config: dict[str, Any] = {}
    if "num_heads" in arguments:
        config["heads"] = arguments["num_heads"]
    if "img_size" in arguments:
        config["image_size"] = as_pair(arguments["img_size"])
    if "clip" in name:
        config["norm_eps"] = 1e-5
    for kind, act in (("quickgelu", "quick_gelu"), ("siglip", "gelu_tanh")):
        if kind in name:
            config["mlp"] = act
    if arguments.get("act_layer") in _ACTS:
        config["mlp"] = _ACTS[arguments["act_layer"]]
    pool = arguments.get("global_pool", values.get("global_pool"))
    if pool in _POOLS:
        config["pooling"] = "mean_all" if pool == "avg" and arguments.get("pool_include_prefix") else _POOLS[pool]
    labels = values.get("label_names") or cfg.get("label_names") or cfg.get("labels") or ()
    labels = tuple(map(str, labels.values() if isinstance(labels, Mapping) else labels))
    return SidecarConfig(config, labels, _read_preprocess(cfg), str(cfg.get("license") or ""))


def _read_preprocess(cfg: Mapping[str, Any]) -> Preprocess | None:
    if "mean" not in cfg or "input_size" not in cfg:
        return None
    channels, *size = cfg["input_size"]
    return Preprocess.from_dict(
        {
            "size": tuple(size),
            "channels": channels,
            "fit": _CROP_MODES.get(cfg.get("crop_mode", "center"), "crop"),
            "crop_fraction": cfg.get("crop_pct", 0.875),
            "interpolation": cfg.get("interpolation", "bicubic"),
            "mean": tuple(cfg["mean"]),
            "std": tuple(cfg["std"]),
        }
    )


def arguments(config: ViTConfig) -> tuple[str, dict[str, Any]]:
    """Return the name of a timm model, and the arguments of `timm.create_model` that make it equal to ours."""
    c = config
    name = "vit_base_patch16_224"
    if c.distillation:
        name = "deit_base_distilled_patch16_224"
    elif c.mlp == "swiglu":
        name = "vit_giant_patch14_dinov2"  # the one with the gated MLP
    elif c.norm_eps == 1e-5:
        name = "vit_base_patch16_clip_224"  # the one with this epsilon
    pools = {"cls": "token", "mean": "avg", "mean_all": "avg", "attention": "map"}
    gate = 2 if c.mlp == "swiglu" else 1
    made: dict[str, Any] = {
        "img_size": list(c.image_size), "patch_size": list(c.patch_size), "in_chans": c.in_channels,
        "embed_dim": c.width, "depth": c.depth, "num_heads": c.heads, "mlp_ratio": gate * c.mlp_width / c.width,
        "qkv_bias": c.qkv_bias, "init_values": c.layer_scale, "num_classes": c.num_classes,
    }  # fmt: skip
    if c.distillation:
        return name, made
    made |= {
        "qk_norm": c.qk_norm, "class_token": c.class_token, "reg_tokens": c.registers, "pre_norm": c.pre_norm,
        "no_embed_class": not c.class_position or not c.class_token, "global_pool": pools[c.pooling],
        "fc_norm": c.final_norm == "pooled", "pos_embed": "learn" if c.position == "learned" else "none",
        "pool_include_prefix": c.pooling == "mean_all" or (c.pooling == "attention" and c.prefix > 0),
    }  # fmt: skip
    if c.mlp in ("gelu_tanh", "quick_gelu"):
        made["act_layer"] = c.mlp
    return name, made


def write_config(config: ViTConfig, info: ModelInfo) -> dict[str, Any]:
    name, made = arguments(config)
    cfg: dict[str, Any] = {
        "num_classes": made.pop("num_classes"),
        "input_size": [config.in_channels, *config.image_size],
    }
    cfg |= {"fixed_input_size": True, "first_conv": "patch_embed.proj", "classifier": "head"}
    if config.distillation:
        cfg["classifier"] = ["head", "head_dist"]
    if (p := info.preprocess) is not None:
        modes = {ours: theirs for theirs, ours in _CROP_MODES.items()}
        cfg |= {
            "input_size": [p.channels, *p.size], "mean": list(p.mean), "std": list(p.std),
            "crop_pct": p.crop_fraction, "crop_mode": modes[p.fit], "interpolation": p.interpolation,
        }  # fmt: skip
    if info.license:
        cfg["license"] = info.license
    values = {"architecture": name, "num_classes": cfg["num_classes"], "num_features": config.width,
              "global_pool": made.get("global_pool", "token"), "model_args": made, "pretrained_cfg": cfg}  # fmt: skip
    if info.class_names:
        values["label_names"] = list(info.class_names)
    return values
