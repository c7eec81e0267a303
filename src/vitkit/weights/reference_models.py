"""Run weights in the library that they come from, if it is installed, to verify a conversion."""

import contextlib
import functools
import importlib
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitkit.errors import first_line
from vitkit.model import ViTConfig
from vitkit.weights import timm_config

Runner = Callable[[Path, Mapping[str, Tensor], ViTConfig, Tensor], Tensor]


class ReferenceUnavailable(Exception):
    """The reference library cannot run the weights. The message says why."""


@torch.no_grad()
def run_reference(layout: str, path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    """Return the logits of `images` by the layout's own library, which loads the file or folder at `path`."""
    if layout not in _RUNNERS:
        raise ReferenceUnavailable(f"there is no reference implementation for {layout}")
    with _silenced_output():
        return _RUNNERS[layout](path, tensors, config, images)


def _timm(path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    timm = import_library("timm")
    name, arguments = timm_config.arguments(config)
    model = timm.create_model(name, pretrained=False, **arguments)
    model.load_state_dict(dict(tensors))
    return model.eval()(images)


def _transformers(path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    if not path.is_dir():
        raise ReferenceUnavailable("transformers only loads folders with a config.json")
    transformers = import_library("transformers")
    architecture = transformers.AutoConfig.from_pretrained(path, local_files_only=True).architectures[0]
    model = getattr(transformers, architecture).from_pretrained(path, local_files_only=True).eval()
    output = model(images)
    return output.logits if config.num_classes else output.last_hidden_state[:, 0]


def _torchvision(path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    models = import_library("torchvision.models.vision_transformer")
    model = models.VisionTransformer(
        image_size=config.image_size[0], patch_size=config.patch_size[0], num_layers=config.depth,
        num_heads=config.heads, hidden_dim=config.width, mlp_dim=config.mlp_width, num_classes=config.num_classes,
        representation_size=config.head_hidden or None,
    )  # fmt: skip
    model.load_state_dict(dict(tensors))
    return model.eval()(images)


def _timm_npz(path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    if config.head_hidden:
        raise ReferenceUnavailable("timm ignores the hidden layer of such files")
    timm = import_library("timm")
    name, arguments = timm_config.arguments(config)
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
