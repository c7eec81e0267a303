"""`ViTConfig`: all architecture settings of a Vision Transformer, validated on creation."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vitkit import config as settings
from vitkit.errors import ConfigError

Pair = tuple[int, int]


@dataclass(frozen=True)
class ViTConfig:
    """Architecture settings. The defaults are ViT-B/16 at 224 pixels (Dosovitskiy et al. 2021, table 1).

    Sizes are (height, width); a single number means a square.
    """

    # Images and patches (eq. 1)
    image_size: Pair = (224, 224)
    patch_size: Pair = (16, 16)
    in_channels: int = 3
    patch_embed: Literal["conv", "linear"] = "conv"  # two implementations of the same function
    drop_remainder: bool = False  # ignore pixels beyond the last complete patch (SigLIP: 384 pixels in patches of 14)
    stem: tuple[int, ...] = ()  # channels of 3×3 stride-2 convolutions before the patches
    patch_norm: bool = False  # a norm on the patch tokens before positions are added (AIMv2)

    # Prefix tokens and positions
    class_token: bool = True
    distillation: bool = False  # a second class token with its own classifier, trained by a teacher (DeiT)
    registers: int = 0
    position: Literal["learned", "sincos", "rotary", "learned_rotary", "none"] = "learned"
    position_resample: Literal["bicubic", "bilinear"] = "bicubic"
    position_antialias: bool = True  # False: resample as transformers and DINOv2 without registers do
    position_offset: float = 0.0  # added to the new grid in the scale factor; 0.1 in DINOv2 without registers
    class_position: bool = True  # whether the learned table has a row for the class token
    rope_unit: Literal["image", "patch"] = "image"  # coordinates from -1 to 1 (DINOv3), or counted in patches (EVA-02)
    rope_base: float = 100.0  # frequencies fall from 1 to 1/base
    rope_offset: float = 0.0  # the coordinate of the first patch, if counted in patches
    rope_grid: Pair | None = None  # another grid is scaled to this one, if counted in patches
    pre_norm: bool = False  # a norm before the first block (CLIP)

    # The encoder (eq. 2 and 3)
    width: int = 768
    depth: int = 12
    heads: int = 12
    head_width: int = 0  # 0: width / heads
    mlp_width: int = 0  # 0: 4 × width
    mlp: Literal["gelu", "gelu_tanh", "quick_gelu", "swiglu"] = "gelu"
    qkv_bias: bool = True
    qk_norm: bool = False
    layer_scale: float | None = None  # the initial value; None: no LayerScale
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float = 1e-6
    sub_norm: Literal["none", "mlp", "all"] = "none"  # also before the last layer of the MLP, of both branches (EVA-02)

    # From tokens to classes (eq. 4)
    # mean and attention_patches use patch tokens only, mean_all and attention all tokens
    pooling: Literal["cls", "mean", "mean_all", "cls_mean", "attention", "attention_patches"] = "cls"
    pool_heads: int = 0  # heads of attention pooling; 0: as in the blocks
    pool_mlp_width: int = 0  # width of the MLP after attention pooling; 0: as in the blocks
    final_norm: Literal["tokens", "pooled", "none"] = "tokens"  # the last norm is before or after pooling
    head_hidden: int = 0  # width of the tanh layer of the pre-training head; 0: a linear head
    num_classes: int = 1000  # 0: no classifier, the model returns pooled features

    init: Literal["normal", "xavier"] = "normal"  # initial weights as in timm and DeiT, or as in the paper's code

    # Regularisation in training
    dropout: float = 0.0  # after the position embedding, the attention projection and both layers of the MLP
    attention_dropout: float = 0.0
    drop_path: float = 0.0  # stochastic depth: rises linearly from 0 to this rate in the last block

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size", "rope_grid"):
            if name != "rope_grid" or self.rope_grid is not None:
                object.__setattr__(self, name, _pair(name, getattr(self, name)))
        settings.check_types(self)
        _derive_widths(self)
        _check_ranges(self)
        _check_combinations(self)

    @property
    def grid(self) -> Pair:
        """The number of patches (down, across) at `image_size`."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def learns_positions(self) -> bool:
        return self.position in ("learned", "learned_rotary")

    @property
    def rotates(self) -> bool:
        return self.position in ("rotary", "learned_rotary")

    def accepts(self, size: Pair) -> bool:
        """Return whether images of this size (height, width) can be cut into patches."""
        return all(s >= p and (self.drop_remainder or s % p == 0) for s, p in zip(size, self.patch_size, strict=True))

    @property
    def prefix(self) -> int:
        """The number of tokens before the first patch token."""
        return int(self.class_token) + int(self.distillation) + self.registers

    @property
    def pooled_width(self) -> int:
        """The width of the pooled features; cls_mean concatenates class token and mean."""
        return self.width * (2 if self.pooling == "cls_mean" else 1)

    def replace(self, **changes: Any) -> "ViTConfig":
        """Return the config with fields changed. Another width or number of heads scales head_width and mlp_width too.

        They keep a value that is given. timm's names are accepted: embed_dim, num_heads, head_dim, mlp_ratio, img_size.
        """
        changes = _own_names(changes, self.width)
        derived = {"head_width": {"width", "heads"}, "mlp_width": {"width"}}
        scaled = {name: 0 for name, sources in derived.items() if sources & changes.keys()}
        return settings.from_dict(ViTConfig, {**self.to_dict(), **scaled, **changes})

    def to_dict(self) -> dict[str, Any]:
        return settings.to_dict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ViTConfig":
        return settings.from_dict(cls, _own_names(values, cls.width))

    @classmethod
    def from_json(cls, text: str) -> "ViTConfig":
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"invalid model config: not JSON: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(f"invalid model config: expected a JSON object, got {type(values).__name__}")
        return cls.from_dict(values)


_TIMM_NAMES = {"embed_dim": "width", "num_heads": "heads", "head_dim": "head_width", "img_size": "image_size"}


def _own_names(values: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return settings with timm's names replaced by the fields of ViTConfig; `width` applies if they set none."""
    found = dict(values)
    for name in [name for name in values if name in _TIMM_NAMES or name == "mlp_ratio"]:
        own = _TIMM_NAMES.get(name, "mlp_width")
        if own in found:
            raise ConfigError(f"{name} and {own} are both given: they are the same setting, remove one")
        found[own] = found.pop(name)
    if "mlp_ratio" in values:
        if not isinstance(ratio := values["mlp_ratio"], int | float) or not isinstance(found.get("width", width), int):
            raise ConfigError(f"mlp_ratio={ratio!r}: expected a number")
        found["mlp_width"] = int(found.get("width", width) * ratio)
    return found


def _derive_widths(c: ViTConfig) -> None:
    """Set the head width to width / heads and the MLP width to 4 × width if they are 0."""
    if not c.head_width and c.heads > 0 and c.width > 0:
        if c.width % c.heads:
            raise ConfigError(f"heads={c.heads} do not divide width={c.width}: change one of them, or give head_width")
        object.__setattr__(c, "head_width", c.width // c.heads)
    if not c.mlp_width:
        object.__setattr__(c, "mlp_width", 4 * c.width)


def _pair(name: str, value: Any) -> Pair:
    pair = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, tuple | list) else ()
    if len(pair) != 2:
        raise ConfigError(f"{name}={value!r}: expected a whole number or (height, width)")
    return pair[0], pair[1]


_POSITIVE = ("image_size", "patch_size", "in_channels", "stem", "width", "depth", "heads", "head_width", "mlp_width")
_RATES = ("dropout", "attention_dropout", "drop_path")


def _check_ranges(config: ViTConfig) -> None:
    for name in _POSITIVE:
        value = getattr(config, name)
        if min(value if isinstance(value, tuple) else (value,), default=1) < 1:
            raise ConfigError(f"{name}={value!r}: must be at least 1")
    for name in ("registers", "head_hidden", "num_classes", "pool_heads", "pool_mlp_width", "position_offset"):
        if getattr(config, name) < 0:
            raise ConfigError(f"{name}={getattr(config, name)}: must not be negative")
    for name in _RATES:
        if not 0 <= getattr(config, name) < 1:
            raise ConfigError(f"{name}={getattr(config, name)}: must be at least 0 and below 1")
    if not 0 < config.norm_eps < 1:
        raise ConfigError(f"norm_eps={config.norm_eps}: must be above 0 and below 1")
    if config.rope_base <= 1 or not math.isfinite(config.rope_base):
        raise ConfigError(f"rope_base={config.rope_base}: must be a finite number above 1")
    if config.rope_grid is not None and min(config.rope_grid) < 1:
        raise ConfigError(f"rope_grid={config.rope_grid!r}: must be at least 1")
    if config.layer_scale is not None and not math.isfinite(config.layer_scale):
        raise ConfigError(f"layer_scale={config.layer_scale}: must be a finite number")


def _check_combinations(c: ViTConfig) -> None:
    for side, image, patch in zip(("height", "width"), c.image_size, c.patch_size, strict=True):
        if image < patch or (image % patch and not c.drop_remainder):
            below, above = image // patch * patch, (image // patch + 1) * patch
            near = f"{below} or {above}" if below else str(above)
            raise ConfigError(f"image {side} {image} is not a multiple of the patch {side} {patch}: use {near}")
        if patch % 2 ** len(c.stem):
            raise ConfigError(
                f"a stem of {len(c.stem)} layers needs a patch {side} that {2 ** len(c.stem)} divides, not {patch}: "
                "use fewer stem layers or another patch_size"
            )
    if c.pooling in ("cls", "cls_mean") and not c.class_token:
        raise ConfigError(f"pooling={c.pooling!r} needs class_token=True: set it, or use pooling='mean'")
    if c.pooling == "cls_mean" and c.final_norm == "pooled":
        raise ConfigError("pooling='cls_mean' needs final_norm='tokens'")
    if c.pool_heads and c.heads * c.head_width % c.pool_heads:
        raise ConfigError(
            f"pool_heads={c.pool_heads} does not divide the {c.heads * c.head_width} channels of all heads"
        )
    if c.distillation and (c.pooling != "cls" or c.final_norm != "tokens" or c.head_hidden):
        raise ConfigError("distillation=True needs pooling='cls', final_norm='tokens' and head_hidden=0, as in DeiT")
    if c.position == "sincos" and (c.width % 4 or c.width < 8):
        raise ConfigError(f"position='sincos' needs a width that is a multiple of 4 and at least 8, not {c.width}")
    if c.rotates and c.head_width % 4:
        raise ConfigError(f"position={c.position!r} needs a head_width that is a multiple of 4, not {c.head_width}")
    if c.head_hidden and not c.num_classes:
        raise ConfigError(f"head_hidden={c.head_hidden} with num_classes=0: set num_classes, or head_hidden=0")
