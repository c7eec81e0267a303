"""Small models that together use every option; the tests of this folder share them."""

from typing import Any

import torch
from torch import Tensor

from vitkit.model import ViT, ViTConfig, create_model

BASE: dict[str, Any] = dict(
    image_size=(16, 24), patch_size=(4, 8), width=16, depth=3, heads=2, head_width=8, mlp_width=32, num_classes=5
)  # fmt: skip

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "linear patches": dict(patch_embed="linear"),
    "stem": dict(stem=(4, 6)),
    "one channel": dict(in_channels=1),
    "registers": dict(registers=3),
    "distillation": dict(distillation=True, registers=1),
    "norm before the blocks": dict(pre_norm=True),
    "registers alone": dict(registers=2, class_token=False, pooling="mean"),
    "no prefix": dict(class_token=False, pooling="mean"),
    "no class position": dict(class_position=False),
    "sincos": dict(position="sincos"),
    "rotary": dict(position="rotary"),
    "rotary counted in patches": dict(position="rotary", rope_unit="patch", rope_base=1e4, rope_offset=1.0),
    "learned and rotary": dict(position="learned_rotary", rope_unit="patch", rope_grid=(3, 2), registers=1),
    "plain resampling": dict(position_antialias=False, position_offset=0.1),
    "remainder dropped": dict(image_size=(18, 31), drop_remainder=True),
    "norm of patches": dict(patch_norm=True),
    "RMSNorm": dict(norm="rms", qk_norm=True, pre_norm=True),
    "norms inside the MLP": dict(sub_norm="mlp", mlp="swiglu"),
    "norms inside both branches": dict(sub_norm="all"),
    "attention pooling of patches": dict(pooling="attention_patches", registers=1, pool_heads=4, pool_mlp_width=20),
    "no final norm": dict(final_norm="none"),
    "rotary registers": dict(position="rotary", registers=3),
    "no position": dict(position="none"),
    "wide heads": dict(head_width=12),
    "narrow heads": dict(heads=3, head_width=4),
    "qk_norm": dict(qk_norm=True),
    "no qkv bias": dict(qkv_bias=False),
    "layer scale": dict(layer_scale=0.5),
    "quick gelu": dict(mlp="quick_gelu"),
    "class token and mean": dict(pooling="cls_mean", registers=1),
    "tanh gelu": dict(mlp="gelu_tanh"),
    "swiglu": dict(mlp="swiglu"),
    "mean": dict(pooling="mean"),
    "mean of all": dict(pooling="mean_all", registers=1),
    "attention pooling": dict(pooling="attention", head_width=12),
    "pooled norm": dict(pooling="mean", final_norm="pooled"),
    "hidden head": dict(head_hidden=7),
    "features": dict(num_classes=0),
    "xavier": dict(init="xavier"),
    "many": dict(registers=2, position="rotary", qk_norm=True, head_width=12, qkv_bias=False, layer_scale=0.5,
                 mlp="swiglu", pooling="attention", final_norm="pooled", stem=(4,), patch_embed="linear"),
}  # fmt: skip


def small_config(**changes: Any) -> ViTConfig:
    return ViTConfig(**{**BASE, **changes})


def small_model(seed: int = 0, **changes: Any) -> ViT:
    """Create a model whose parameters all differ from their initial values: zeros and ones would hide missing parts."""
    model = create_model(small_config(**changes), seed=seed).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    return model


def random_images(model: ViT | ViTConfig, batch: int = 2, size: tuple[int, int] | None = None, seed: int = 0) -> Tensor:
    config = model if isinstance(model, ViTConfig) else model.config
    shape = (batch, config.in_channels, *(size or config.image_size))
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
