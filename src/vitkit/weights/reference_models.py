"""Run weights in the library that they come from, if it is installed, to verify a conversion."""

import contextlib
import functools
import importlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitkit.errors import first_line
from vitkit.model import ViTConfig
from vitkit.weights import timm_config


@dataclass(frozen=True)
class Checkpoint:
    """Weights to run in their library. What describes the architecture must not come from vitkit's own reading."""

    path: Path  # the file or folder
    tensors: Mapping[str, Tensor]
    config: ViTConfig  # used for the shapes that the tensors show
    architecture: str = ""  # the library's name of it
    written: bool = False  # vitkit wrote it, so that `config` describes what it should compute


Runner = Callable[[Checkpoint, Tensor], Tensor]


class ReferenceUnavailable(Exception):
    """The reference library cannot run the weights. The message says why."""


@torch.no_grad()
def run_reference(layout: str, checkpoint: Checkpoint, images: Tensor) -> Tensor:
    """Return the logits of `images` by the layout's own library, which builds the model from its own description."""
    if layout not in _RUNNERS:
        raise ReferenceUnavailable(f"there is no reference implementation for {layout}")
    with _silenced_output():
        return _RUNNERS[layout](checkpoint, images)


def _timm(checkpoint: Checkpoint, images: Tensor) -> Tensor:
    timm = import_library("timm")
    if (checkpoint.path / "config.json").is_file():
        return timm.create_model(f"local-dir:{checkpoint.path}", pretrained=True).eval()(images)
    if checkpoint.written:
        name, arguments = timm_config.arguments(checkpoint.config)
    elif checkpoint.architecture:
        c, name = checkpoint.config, checkpoint.architecture
        arguments = {"num_classes": c.num_classes, "in_chans": c.in_channels, "img_size": c.image_size}
    else:
        raise ReferenceUnavailable("the file does not name its architecture, so that timm cannot build it")
    model = timm.create_model(name, pretrained=False, **arguments)
    model.load_state_dict(dict(checkpoint.tensors))
    return model.eval()(images)


def _transformers(checkpoint: Checkpoint, images: Tensor) -> Tensor:
    path = checkpoint.path
    if not path.is_dir():
        raise ReferenceUnavailable("transformers only loads folders with a config.json")
    transformers = import_library("transformers")
    architecture = transformers.AutoConfig.from_pretrained(path, local_files_only=True).architectures[0]
    model = getattr(transformers, architecture).from_pretrained(path, local_files_only=True).eval()
    if hasattr(model, "get_image_features"):
        output = model.get_image_features(images)
        return output if isinstance(output, Tensor) else output.pooler_output
    output = model(images)
    if checkpoint.config.num_classes:
        return output.logits
    by_pooler = checkpoint.config.pooling.startswith("attention")
    tokens = output.last_hidden_state
    return output.pooler_output if by_pooler else tokens[:, 0] if checkpoint.config.class_token else tokens.mean(1)


# (width, patch) → torchvision's builder
_TORCHVISION = {(768, 16): "vit_b_16", (768, 32): "vit_b_32", (1024, 16): "vit_l_16", (1024, 32): "vit_l_32",
                (1280, 14): "vit_h_14"}  # fmt: skip


def _torchvision(checkpoint: Checkpoint, images: Tensor) -> Tensor:
    models, c = import_library("torchvision.models.vision_transformer"), checkpoint.config
    shown = dict(image_size=c.image_size[0], num_classes=c.num_classes, representation_size=c.head_hidden or None)
    if checkpoint.written:
        model = models.VisionTransformer(
            patch_size=c.patch_size[0], num_layers=c.depth, num_heads=c.heads, hidden_dim=c.width, mlp_dim=c.mlp_width,
            **shown,
        )  # fmt: skip
    elif (c.width, c.patch_size[0]) in _TORCHVISION:
        model = getattr(models, _TORCHVISION[c.width, c.patch_size[0]])(**shown)
    else:
        raise ReferenceUnavailable("torchvision publishes no model of this size")
    model.load_state_dict(dict(checkpoint.tensors))
    return model.eval()(images)


def _timm_npz(checkpoint: Checkpoint, images: Tensor) -> Tensor:
    if checkpoint.config.head_hidden:
        raise ReferenceUnavailable("timm ignores the hidden layer of such files")
    timm, path = import_library("timm"), checkpoint.path
    name, arguments = timm_config.arguments(checkpoint.config)  # the shapes of such files show the heads
    model = timm.create_model(name, pretrained=False, **arguments)
    model.load_pretrained(str(path if path.is_file() else path / "model.npz"))
    return model.eval()(images)


_RUNNERS: dict[str, Runner] = {
    "timm": _timm,
    "hf-vit": _transformers,
    "hf-deit": _transformers,
    "hf-dinov2": _transformers,
    "hf-dinov2-registers": _transformers,
    "hf-dinov3": _transformers,
    "hf-clip": _transformers,
    "hf-siglip": _transformers,
    "hf-siglip-classifier": _transformers,
    "torchvision": _torchvision,
    "npz": _timm_npz,
}


def import_library(name: str) -> Any:
    _complete_torchvision()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ReferenceUnavailable(f"{name.split('.')[0]} is not installed") from error
    except (ImportError, RuntimeError) as error:
        raise ReferenceUnavailable(f"{name} cannot be imported: {first_line(error)}") from error


@functools.cache
def _complete_torchvision() -> torch.library.Library | None:
    """Declare the operators that a torchvision built for another torch lacks, until the returned object is deleted.

    Libraries that import torchvision would fail without them. No ViT calls them, so declarations suffice.
    """
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return None  # not installed: no library imports it
    except RuntimeError:
        declared = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's
        for operator in ("nms", "qnms"):
            with contextlib.suppress(RuntimeError):
                declared.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]  # torch's
        return declared
    return None


@contextlib.contextmanager
def _silenced_output() -> Iterator[None]:
    """Discard everything that is written to sys.stdout and sys.stderr, such as progress bars and warnings."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield
