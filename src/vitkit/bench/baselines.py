"""Builds the same architecture in other libraries. Weights are random: speed does not depend on them."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from vitkit.bench.naive_vit import NaiveViT
from vitkit.model import ViTConfig
from vitkit.weights import timm_config
from vitkit.weights.reference_models import ReferenceUnavailable, import_library


class BaselineUnavailable(Exception):
    """A baseline cannot be built. The message gives the reason and a remedy."""


def _timm(c: ViTConfig) -> nn.Module:
    name, arguments = timm_config.arguments(c)
    return import_library("timm").create_model(name, pretrained=False, **arguments)


class _Logits(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images).logits


def _hf(c: ViTConfig) -> nn.Module:
    transformers = import_library("transformers")
    config = transformers.ViTConfig(
        hidden_size=c.width, num_hidden_layers=c.depth, num_attention_heads=c.heads, intermediate_size=c.mlp_width,
        image_size=c.image_size[0], patch_size=c.patch_size[0], num_channels=c.in_channels, num_labels=c.num_classes,
        layer_norm_eps=c.norm_eps,
    )  # fmt: skip
    return _Logits(transformers.ViTForImageClassification(config))


def _torchvision(c: ViTConfig) -> nn.Module:
    return import_library("torchvision.models.vision_transformer").VisionTransformer(
        image_size=c.image_size[0], patch_size=c.patch_size[0], num_layers=c.depth, num_heads=c.heads,
        hidden_dim=c.width, mlp_dim=c.mlp_width, num_classes=c.num_classes,
    )  # fmt: skip


def _vit_pytorch(c: ViTConfig) -> nn.Module:
    return import_library("vit_pytorch").ViT(
        image_size=c.image_size[0], patch_size=c.patch_size[0], num_classes=c.num_classes, dim=c.width, depth=c.depth,
        heads=c.heads, mlp_dim=c.mlp_width, dim_head=c.head_width, channels=c.in_channels,
    )  # fmt: skip


# name on the command line → (package, function that builds the model)
BASELINES: dict[str, tuple[str, Callable[[ViTConfig], nn.Module]]] = {
    "timm": ("timm", _timm),
    "hf": ("transformers", _hf),
    "torchvision": ("torchvision", _torchvision),
    "vit-pytorch": ("vit-pytorch", _vit_pytorch),
    "tutorial": ("", NaiveViT),
}


def build_baseline(name: str, config: ViTConfig) -> nn.Module:
    """Return the architecture in the named library, or raise `BaselineUnavailable`."""
    package, build = BASELINES[name]
    if config.stem or config.rotates or config.image_size[0] != config.image_size[1]:
        raise BaselineUnavailable("does not support a stem, rotary positions or non-square images: compare a plain ViT")
    extended = config.registers or config.layer_scale or config.qk_norm or config.distillation or config.mlp == "swiglu"
    if name != "timm" and extended:
        raise BaselineUnavailable(
            "does not support registers, LayerScale, SwiGLU, QK-norm or distillation: compare a plain ViT, or timm"
        )
    if name == "torchvision" and config.in_channels != 3:
        raise BaselineUnavailable("supports only images of three channels")
    try:
        return build(config)
    except ReferenceUnavailable as error:
        raise BaselineUnavailable(f"{error}: pip install {package}") from error
