"""Read and write config.json of a timm hub folder."""

from collections.abc import Mapping
from typing import Any

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo, ViTConfig
from vitkit.weights.metadata import SidecarConfig, as_pair

_CROP_MODES = {"center": "crop", "squash": "squash", "border": "pad"}
_POOLS = {"token": "cls", "avg": "mean", "map": "attention"}
_ACTS = {"gelu": "gelu", "gelu_tanh": "gelu_tanh", "quick_gelu": "quick_gelu"}
# Arguments of timm's models that the tensors show, or that do not change the outputs of a trained model
_SHOWN = {
    "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "mlp_ratio", "qkv_bias", "qk_norm", "init_values",
    "class_token", "reg_tokens", "num_reg_tokens", "pre_norm", "no_embed_class", "fc_norm", "dynamic_img_size",
    "strict_img_size", "drop_rate", "pos_drop_rate", "patch_drop_rate", "proj_drop_rate", "attn_drop_rate",
    "drop_path_rate", "weight_init", "fix_init", "head_init_scale", "use_fc_norm",
}  # fmt: skip
_READ = {"num_heads", "img_size", "act_layer", "global_pool", "pool_include_prefix", "pos_embed"}


def read_config(values: Mapping[str, Any], where: object) -> SidecarConfig:
    cfg, arguments = values.get("pretrained_cfg") or values, values.get("model_args") or {}
    if unknown := sorted(arguments.keys() - _SHOWN - _READ):
        raise WeightsError(f"{where}: the model argument {unknown[0]}={arguments[unknown[0]]!r} is not supported")
    config: dict[str, Any] = {}
    if "num_heads" in arguments:
        config["heads"] = arguments["num_heads"]
    size = arguments.get("img_size") or (cfg.get("input_size") or ())[1:]
    if size:
        config["image_size"] = as_pair(list(size) if isinstance(size, tuple) else size)
    if "act_layer" in arguments:
        if arguments["act_layer"] not in _ACTS:
            raise WeightsError(f"{where}: act_layer={arguments['act_layer']!r} is not supported")
        config["mlp"] = _ACTS[arguments["act_layer"]]
    if arguments.get("pos_embed", "learn") not in ("learn", ""):
        config["position"] = "none"
    pool = arguments.get("global_pool", values.get("global_pool"))
    if pool:
        if pool not in _POOLS:
            raise WeightsError(f"{where}: global_pool={pool!r} is not supported; supported are {', '.join(_POOLS)}")
        if arguments.get("pool_include_prefix"):
            config["pooling"] = {"avg": "mean_all", "map": "attention"}.get(pool, "cls")
        elif pool != "map":  # the tensors show it, and the architecture which tokens it uses
            config["pooling"] = _POOLS[pool]
    labels = values.get("label_names") or cfg.get("label_names") or cfg.get("labels") or ()
    labels = tuple(map(str, labels.values() if isinstance(labels, Mapping) else labels))
    licence, name = str(cfg.get("license") or ""), str(values.get("architecture", ""))
    return SidecarConfig(config, labels, _read_preprocess(cfg), licence, architecture=name)


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
    pools = {"cls": "token", "mean": "avg", "mean_all": "avg", "attention": "map", "attention_patches": "map"}
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
