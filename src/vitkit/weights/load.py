"""Weights of other libraries as a vitkit model: layout and config found out, every tensor accounted for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ViT, ViTConfig
from vitkit.weights.build import build
from vitkit.weights.equivalent import without_register_rows
from vitkit.weights.infer_config import deduce_config
from vitkit.weights.layouts import Layout
from vitkit.weights.metadata import LoadReport, ModelInfo
from vitkit.weights.sidecar import read_beside
from vitkit.weights.state_dict import detect, to_ours, zeros
from vitkit.weights.tensor_files import find_weights, read_tensors


def read_foreign(source: Path, given: Mapping[str, Any] | None = None, name: str = "") -> tuple[ViT, LoadReport]:
    """The model with its `info`, and how it came about. `given` are config values that no tensor shows."""
    path = find_weights(source)
    raw, note = read_tensors(path)
    told = read_beside(path)
    layout = detect(raw, path)
    mapped = to_ours(layout, raw, path)
    tensors = _as_float32(mapped.tensors, path)
    hints = {**told.config, **({"heads": mapped.heads} if mapped.heads else {}), **(given or {})}
    config, assumed = deduce_config(tensors, hints, layout.config, path)
    filled = zeros(layout, tensors, config)
    tensors = without_register_rows(tensors, config) | _zeros_for(filled, config)
    model = build(config, tensors, path)
    names = _names(told.class_names, config, assumed)
    seen = told.preprocess or _usual_preprocess(layout, config, assumed)
    halves = sorted({str(t.dtype).removeprefix("torch.") for t in mapped.tensors.values()} - {"float32"})
    notes = [*told.notes, *([note] if note else []), *(f"{kind} weights became float32" for kind in halves)]
    report = LoadReport(
        name or source.name, layout.name, config, mapped.used, mapped.dropped, filled, tuple(assumed + notes)
    )
    model.info = ModelInfo(class_names=names, preprocess=seen, license=told.license, origin=report.origin())
    return model, report


def _as_float32(tensors: Mapping[str, Tensor], where: object) -> dict[str, Tensor]:
    for key, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise WeightsError(f"{where}: {key} is {tensor.dtype}: quantised weights cannot be read")
    return {key: tensor.to(torch.float32).contiguous() for key, tensor in tensors.items()}


def _zeros_for(keys: Mapping[str, str], config: ViTConfig) -> dict[str, Tensor]:
    with torch.device("meta"):
        shapes = {key: tensor.shape for key, tensor in ViT(config).state_dict().items()}
    return {key: torch.zeros(shapes[key]) for key in keys}


def _names(found: Any, config: ViTConfig, assumed: list[str]) -> tuple[str, ...]:
    if found and len(found) != config.num_classes:
        if config.num_classes:
            assumed.append(f"the {len(found)} class names beside the weights are not for {config.num_classes} classes")
        return ()
    return tuple(found)


def _usual_preprocess(layout: Layout, config: ViTConfig, assumed: list[str]) -> Preprocess | None:
    """As the layout's published models have it; for images of three channels alone."""
    if config.in_channels != 3:
        return None
    seen = Preprocess.from_dict({"size": config.image_size, **layout.preprocess})
    edge = min(seen.resized_size(seen.size))
    assumed.append(
        f"preprocessing: resized to {edge} {seen.interpolation}, {seen.fit} to {seen.size[0]}×{seen.size[1]}, "
        f"mean {' '.join(f'{v:.3f}' for v in seen.mean)}, deviation {' '.join(f'{v:.3f}' for v in seen.std)}, as "
        f"published models of this layout have it; no file beside the weights tells it"
    )
    return seen
