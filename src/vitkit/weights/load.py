"""Weights of other libraries as a vitkit model: layout and config found out, every tensor accounted for."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo, ViT, ViTConfig
from vitkit.weights import hub, sidecar
from vitkit.weights.infer_config import infer_config
from vitkit.weights.layouts import Layout
from vitkit.weights.metadata import LoadReport
from vitkit.weights.model_dir import CONFIG, find_model_dir, read_config_json, read_model_dir
from vitkit.weights.resize import Side, adapt
from vitkit.weights.sidecar import read_sidecar
from vitkit.weights.state_dict import build, detect, import_state_dict, without_register_rows, zeros
from vitkit.weights.tensor_files import find_weights, read_tensors

Names = Sequence[str] | str | Path  # class names, or a file of them
Given = Preprocess | Mapping[str, Any] | str | Path


def load_model(
    source: str | Path,
    device: str | torch.device = "cpu",
    *,
    class_names: Names | None = None,
    preprocess: Given | None = None,
    config: Mapping[str, Any] | None = None,
    image_size: Side | None = None,
    patch_size: Side | None = None,
    in_channels: int | None = None,
    num_classes: int | None = None,
) -> ViT:
    """The model of a model folder, a run folder, a foreign checkpoint or hf-hub:owner/name, in eval mode.

    Refused where anything does not fit. `model.info` holds what came with it; of foreign weights `model.info.origin`
    says what had to be assumed. Class names and preprocessing, or files of them, may be given where the weights bring
    none; `config` gives what no tensor shows, such as {"heads": 6}. Another image size, patch size, number of channels
    or of classes than the weights have adapts them.
    """
    model, _ = load_with_report(
        source, class_names=class_names, preprocess=preprocess, config=config, image_size=image_size,
        patch_size=patch_size, in_channels=in_channels, num_classes=num_classes,
    )  # fmt: skip
    return model.to(device)


def load_with_report(
    source: str | Path,
    *,
    class_names: Names | None = None,
    preprocess: Given | None = None,
    config: Mapping[str, Any] | None = None,
    image_size: Side | None = None,
    patch_size: Side | None = None,
    in_channels: int | None = None,
    num_classes: int | None = None,
) -> tuple[ViT, LoadReport]:
    """The same, with the report of how it came about."""
    path = hub.fetch(str(source)) if hub.is_name(source) else Path(source)
    folder = find_model_dir(path)
    if folder and config:
        raise WeightsError(f"{source} says itself what it is: {', '.join(config)} cannot be set for it")
    name = str(source) if hub.is_name(source) else ""
    model, report = read_model_dir(folder) if folder else load_foreign(path, config, name)
    if preprocess is not None:
        model.info = model.info.replace(preprocess=sidecar.preprocess(preprocess))
    model, changes = adapt(model, image_size, patch_size, in_channels, num_classes)
    if class_names is not None:
        names = sidecar.class_names(class_names)
        if len(names) != model.config.num_classes:
            raise WeightsError(f"{len(names)} class names for a model of {model.config.num_classes} classes ({source})")
        model.info = model.info.replace(class_names=names)
    if changes or preprocess is not None:
        assumed = [line for line in report.assumed if preprocess is None or not line.startswith("preprocessing: ")]
        report = dataclasses.replace(report, config=model.config, assumed=assumed, adapted=changes)
        if not folder:
            model.info = model.info.replace(origin=report.origin())
    return model, report


def read_config(source: str | Path) -> ViTConfig:
    path = hub.fetch(str(source)) if hub.is_name(source) else Path(source)
    folder = find_model_dir(path)
    return read_config_json(folder / CONFIG)[0] if folder else load_foreign(path)[1].config


def load_foreign(source: Path, given: Mapping[str, Any] | None = None, name: str = "") -> tuple[ViT, LoadReport]:
    """The model with its `info`, and how it came about. `given` are config values that no tensor shows."""
    path = find_weights(source)
    raw, note = read_tensors(path)
    told = read_sidecar(path)
    layout = detect(raw, path)
    mapped = import_state_dict(layout, raw, path)
    tensors = _as_float32(mapped.tensors, path)
    hints = {**told.config, **({"heads": mapped.heads} if mapped.heads else {}), **(given or {})}
    config, assumed = infer_config(tensors, hints, layout.config, path)
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
