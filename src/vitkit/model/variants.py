"""The model variants by name: a table of sizes, and a table of their patch sizes and resolutions."""

import fnmatch
from dataclasses import dataclass
from typing import Any

from vitkit.errors import UnknownNameError
from vitkit.model.config import ViTConfig


@dataclass(frozen=True)
class ModelSize:
    width: int
    depth: int
    heads: int
    mlp_width: int
    source: str


VIT = "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, table 1"
DEIT = "Touvron et al. 2021, DeiT, table 1"
SCALING = "Zhai et al. 2022, Scaling Vision Transformers, table 2"

SIZES = {
    "tiny": ModelSize(192, 12, 3, 768, DEIT),
    "small": ModelSize(384, 12, 6, 1536, DEIT),
    "base": ModelSize(768, 12, 12, 3072, VIT),
    "large": ModelSize(1024, 24, 16, 4096, VIT),
    "huge": ModelSize(1280, 32, 16, 5120, VIT),
    "giant": ModelSize(1408, 40, 16, 6144, SCALING),
    "gigantic": ModelSize(1664, 48, 16, 8192, SCALING),
}

# size → patch size → resolutions
RELEASED: dict[str, dict[int, tuple[int, ...]]] = {
    "tiny": {16: (224, 384)},
    "small": {32: (224, 384), 16: (224, 384), 14: (224,), 8: (224,)},
    "base": {32: (224, 384), 16: (224, 384), 14: (224,), 8: (224,)},
    "large": {32: (224, 384), 16: (224, 384), 14: (224,)},
    "huge": {16: (224,), 14: (224, 378)},
    "giant": {14: (224,)},
    "gigantic": {14: (224,)},
}

# Models for small images. `stem` in the name: strided convolutions come before the patches.
SMALL: dict[str, tuple[dict[str, Any], str]] = {
    "vit_nano_patch4_32": (
        dict(width=48, depth=4, heads=4, head_width=12, mlp_width=192, patch_size=4, pooling="mean", class_token=False),
        "the usual CIFAR-10 model of from-scratch tutorials",
    ),
    "vit_micro_patch4_32": (
        dict(width=192, depth=6, heads=3, mlp_width=768, patch_size=4, pooling="mean", class_token=False),
        "DeiT-Tiny's width at half the depth, for 32-pixel images",
    ),
    "vit_pico_stem4_32": (
        dict(width=80, depth=4, heads=2, head_width=32, mlp_width=160, patch_size=4, stem=(64, 128),
             position="rotary", pooling="mean", class_token=False),
        "convolutional stem as in Xiao et al. 2021, the size of CCT-2 (Hassani et al. 2021)",
    ),
    "vit_pico_stem8_32": (
        dict(width=80, depth=4, heads=4, head_width=20, mlp_width=160, patch_size=8, stem=(32, 64, 64),
             position="rotary", pooling="mean", class_token=False),
        "three convolutions leave a quarter of the tokens: the cheapest training step",
    ),
    "vit_micro_stem4_32": (
        dict(width=128, depth=4, heads=4, head_width=32, mlp_width=256, patch_size=4, stem=(64, 128), position="rotary",
             pooling="mean", class_token=False),
        "between pico and mini, for one or two hours on a CPU",
    ),
    "vit_mini_stem4_32": (
        dict(width=256, depth=7, heads=4, head_width=64, mlp_width=512, patch_size=4, stem=(32, 64), pooling="mean",
             class_token=False),
        "convolutional stem as in Xiao et al. 2021, the size of CCT-7 (Hassani et al. 2021)",
    ),
    "vit_digits_patch2_8": (
        dict(width=64, depth=4, heads=4, head_width=16, mlp_width=128, image_size=8, patch_size=2, in_channels=1,
             position="rotary"),
        "for the 8×8 handwritten digits of `vitkit demo`",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    name: str
    config: ViTConfig
    source: str


def _released(size: str, patch: int, resolution: int) -> Variant:
    s = SIZES[size]
    config = ViTConfig(
        image_size=(resolution, resolution), patch_size=(patch, patch), width=s.width, depth=s.depth, heads=s.heads,
        head_width=s.width // s.heads, mlp_width=s.mlp_width,
    )  # fmt: skip
    return Variant(f"vit_{size}_patch{patch}_{resolution}", config, s.source)


def _small(name: str) -> Variant:
    values, source = SMALL[name]
    return Variant(name, ViTConfig.from_dict({"image_size": 32, "num_classes": 10, "init": "xavier", **values}), source)


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in [
        *map(_small, SMALL),
        *(_released(size, p, r) for size, patches in RELEASED.items() for p, rs in patches.items() for r in rs),
    ]
}


def find_variants(pattern: str = "*") -> list[Variant]:
    """Return the variants whose name matches a shell pattern or contains it."""
    names = [n for n in VARIANTS if fnmatch.fnmatch(n, pattern) or pattern in n]
    if not names:
        raise UnknownNameError("model", pattern, VARIANTS, "`vitkit models` lists them")
    return [VARIANTS[n] for n in names]


def list_models(pattern: str = "*") -> list[str]:
    """Return the names of the model variants that match a shell pattern or contain it."""
    return [variant.name for variant in find_variants(pattern)]


def get_config(name: str) -> ViTConfig:
    """Return the config of a variant, or suggest similar names."""
    if name not in VARIANTS:
        raise UnknownNameError("model", name, VARIANTS, "`vitkit models` lists them")
    return VARIANTS[name].config
