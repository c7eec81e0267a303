"""A vitkit model as files of another library: weights, and the config with which that library loads them."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from vitkit.atomic import write_atomic, write_json
from vitkit.errors import UnknownNameError, WeightsError
from vitkit.model import ViT, ViTConfig
from vitkit.weights import hf_config, timm_config
from vitkit.weights.equivalent import rewrite
from vitkit.weights.layouts import TARGETS, Layout
from vitkit.weights.metadata import ModelInfo
from vitkit.weights.state_dict import to_theirs, what_it_cannot_hold


@dataclass(frozen=True)
class Written:
    layout: Layout
    config: ViTConfig  # of the form in which the layout holds the model
    tensors: dict[str, Tensor]
    path: Path  # the file or folder
    notes: tuple[str, ...]


def write_model(model: ViT, out: str | Path, to: str) -> Written:
    """Into a folder with the library's config, or a single file where `out` ends in .safetensors or .npz."""
    if to not in TARGETS:
        raise UnknownNameError("layout to write", to, TARGETS)
    state = {key: tensor.detach().cpu().float() for key, tensor in model.state_dict().items()}
    layout, tensors, config = _fit(state, model.config, to)
    notes = []
    eps = (layout.holds or {}).get("norm_eps")
    if eps and config.norm_eps not in eps:
        notes.append(f"norm_eps={config.norm_eps:g} becomes {eps[0]:g} in {layout.name}: the difference below shows it")
    out, info = Path(out), model.info or ModelInfo()
    wanted = ".npz" if to == "npz" else ".safetensors"
    if out.suffix in (".npz", ".safetensors", ".pth", ".bin"):
        if out.suffix != wanted:
            raise WeightsError(f"{out}: {to} is written as {wanted}, or into a folder")
        out.parent.mkdir(parents=True, exist_ok=True)
        _write_tensors(out, tensors)
        return Written(layout, config, tensors, out, tuple(notes))
    out.mkdir(parents=True, exist_ok=True)
    _write_tensors(out / f"model{wanted}", tensors)
    for name, content in _CONFIGS[to](layout.name, config, info).items():
        if content is None:
            notes.append(f"{name} is not written: {to} has no such preprocessing as the model's")
        else:
            write_json(out / name, content)
    return Written(layout, config, tensors, out, tuple(notes))


def _fit(state: dict[str, Tensor], config: ViTConfig, to: str) -> tuple[Layout, dict[str, Tensor], ViTConfig]:
    """The first layout of a library that can hold the model; the refusal names what the nearest one lacks."""
    refusals = []
    for layout in TARGETS[to]:
        rewritten, form = rewrite(state, config, layout.rewrites)
        refusal = what_it_cannot_hold(layout, form)
        if refusal is None:
            return layout, to_theirs(layout, rewritten, form), form
        refusals.append(refusal)
    raise WeightsError("; ".join(refusals))


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **{key: tensor.numpy() for key, tensor in tensors.items()})  # type: ignore[arg-type]  # names may be any
        write_atomic(path, buffer.getvalue())
    else:
        contiguous = {key: tensor.clone(memory_format=torch.contiguous_format) for key, tensor in tensors.items()}
        write_atomic(path, save(contiguous, metadata={"format": "pt"}))


def _hf(layout: str, config: ViTConfig, info: ModelInfo) -> dict[str, Any]:
    files: dict[str, Any] = {"config.json": hf_config.write_config(layout, config, info)}
    if info.preprocess is not None:
        files["preprocessor_config.json"] = hf_config.write_preprocessor(info.preprocess)
    return files


def _timm(layout: str, config: ViTConfig, info: ModelInfo) -> dict[str, Any]:
    return {"config.json": timm_config.write_config(config, info)}


def _none(layout: str, config: ViTConfig, info: ModelInfo) -> dict[str, Any]:
    return {}


_CONFIGS: dict[str, Callable[[str, ViTConfig, ModelInfo], dict[str, Any]]] = {
    "hf": _hf,
    "timm": _timm,
    "dinov2": _none,
    "torchvision": _none,
    "npz": _none,
}
