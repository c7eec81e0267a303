"""The same weights run by the library they are for, where it is installed: the last word on a conversion."""

import contextlib
import functools
import importlib
import io
import os
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
    """The library cannot be asked; says why."""


@torch.no_grad()
def run_reference(layout: str, path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    """Logits of the library's own model, from the file or folder at `path`."""
    if layout not in _RUNNERS:
        raise ReferenceUnavailable(f"no library is asked about {layout}")
    with _quiet():
        return _RUNNERS[layout](path, tensors, config, images)


def _timm(path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    timm = library("timm")
    name, arguments = timm_config.arguments(config)
    model = timm.create_model(name, pretrained=False, **arguments)
    model.load_state_dict(dict(tensors))
    return model.eval()(images)


def _transformers(path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    if not path.is_dir():
        raise ReferenceUnavailable("transformers loads folders with a config.json")
    transformers = library("transformers")
    found = transformers.AutoConfig.from_pretrained(path).architectures[0]
    model = getattr(transformers, found).from_pretrained(path).eval()
    output = model(images)
    return output.logits if config.num_classes else output.last_hidden_state[:, 0]


def _torchvision(path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    models = library("torchvision.models.vision_transformer")
    model = models.VisionTransformer(
        image_size=config.image_size[0], patch_size=config.patch_size[0], num_layers=config.depth,
        num_heads=config.heads, hidden_dim=config.width, mlp_dim=config.mlp_width, num_classes=config.num_classes,
        representation_size=config.head_hidden or None,
    )  # fmt: skip
    model.load_state_dict(dict(tensors))
    return model.eval()(images)


def _timm_npz(path: Path, tensors: Mapping[str, Tensor], config: ViTConfig, images: Tensor) -> Tensor:
    if config.head_hidden:
        raise ReferenceUnavailable("timm leaves out the hidden layer of such files")
    timm = library("timm")
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


def library(name: str) -> Any:
    _complete_torchvision()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ReferenceUnavailable(f"{name.split('.')[0]} is not installed") from error
    except (ImportError, RuntimeError) as error:
        raise ReferenceUnavailable(f"{name} cannot be imported: {first_line(error)}") from error


@functools.cache
def _complete_torchvision() -> torch.library.Library | None:
    """Where it was built for another torch its operators are missing by name, and libraries that look for it fail,
    some of them late. Declared, they may stay empty: no ViT calls them. They live as long as what is returned."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        return None  # not installed: nobody will look for it
    except RuntimeError:
        declared = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's
        for operator in ("nms", "qnms"):
            with contextlib.suppress(RuntimeError):
                declared.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]  # torch's
        return declared
    return None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the libraries' progress bars and advice, and without their looking at the hub."""
    before = {key: os.environ.get(key) for key in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_PROGRESS_BARS")}
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        for key, value in before.items():
            os.environ.pop(key, None) if value is None else os.environ.update({key: value})
