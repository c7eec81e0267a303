"""The self-contained model folder: weights, and everything without which they would be used wrongly.

    model.safetensors   the weights
    config.json         architecture, class names, preprocessing, recipe, data, metrics, and the weights' SHA-256
    README.md           the model card

A run folder of `vitkit train` holds one as `model/`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from vitkit.atomic import sha256, write_atomic, write_json
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError, WeightsError
from vitkit.model import ViT, ViTConfig
from vitkit.version import __version__
from vitkit.weights import hub
from vitkit.weights import sidecar as beside
from vitkit.weights.build import build
from vitkit.weights.load import read_foreign
from vitkit.weights.metadata import LoadReport, ModelInfo, names_and_preprocess
from vitkit.weights.resize import Side, adapt
from vitkit.weights.tensor_files import read_json, read_tensors

Names = Sequence[str] | str | Path  # class names, or a file of them
Given = Preprocess | Mapping[str, Any] | str | Path

__all__ = ["CONFIG", "WEIGHTS", "ModelInfo", "load_model", "names_and_preprocess", "read_config", "save_model"]

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


def save_model(model: ViT, folder: str | Path, info: ModelInfo | None = None) -> Path:
    """Write the folder; the weights first and the config that names their hash last, so that half a save shows."""
    info = info or model.info or ModelInfo()
    if info.class_names and len(info.class_names) != model.config.num_classes:
        raise WeightsError(f"{len(info.class_names)} class names for a model of {model.config.num_classes} classes")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = save({key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()})
    write_atomic(folder / WEIGHTS, weights)
    config = describe(model.config, info, sha256(weights))
    name = folder.name if folder.name != "model" else folder.resolve().parent.name  # of a run: the run's
    write_atomic(folder / CARD, card(name, model, info).encode())
    write_json(folder / CONFIG, config)
    return folder


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
    model, _ = read_model(
        source, class_names=class_names, preprocess=preprocess, config=config, image_size=image_size,
        patch_size=patch_size, in_channels=in_channels, num_classes=num_classes,
    )  # fmt: skip
    return model.to(device)


def read_model(
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
    folder = own_folder(path)
    if folder and config:
        raise WeightsError(f"{source} says itself what it is: {', '.join(config)} cannot be set for it")
    name = str(source) if hub.is_name(source) else ""
    model, report = _read_folder(folder) if folder else read_foreign(path, config, name)
    if preprocess is not None:
        model.info = model.info.replace(preprocess=beside.preprocess(preprocess))
    model, changes = adapt(model, image_size, patch_size, in_channels, num_classes)
    if class_names is not None:
        names = beside.class_names(class_names)
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
    folder = own_folder(path)
    return read_description(folder / CONFIG)[0] if folder else read_foreign(path)[1].config


def own_info(source: str | Path) -> ModelInfo | None:
    """What a model folder of vitkit's says of itself; None: it is none."""
    folder = None if hub.is_name(source) else own_folder(Path(source))
    return read_description(folder / CONFIG)[1] if folder else None


def own_folder(source: Path) -> Path | None:
    """Where a model folder of vitkit's is: here, or in the run folder that this is; None: it is none."""
    for place in (source, source / "model"):
        if (place / CONFIG).is_file():
            values = _read_json(place / CONFIG)
            if values.get("model_type") == "vitkit" or "vitkit_version" in values:
                return place
    return None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except WeightsError as error:
        raise WeightsError(f"{path} is damaged: {error}") from error


def _read_folder(folder: Path) -> tuple[ViT, LoadReport]:
    config, info, expected = read_description(folder / CONFIG)
    path = folder / WEIGHTS
    if not path.is_file():
        raise WeightsError(f"{path} is missing: the folder is not complete")
    if sha256(path) != expected:
        raise WeightsError(f"{path} is not the file that {CONFIG} names (SHA-256 differs): damaged or exchanged")
    tensors, _ = read_tensors(path)
    model = build(config, tensors, path)
    model.info = info
    return model, LoadReport(str(folder), "vitkit", config, len(tensors))


def describe(config: ViTConfig, info: ModelInfo, digest: str = "") -> dict[str, Any]:
    """What `config.json` holds; without the digest of weights that are still in training."""
    return {
        "model_type": "vitkit",
        "vitkit_version": __version__,
        "model": config.to_dict(),
        "class_names": list(info.class_names),
        "preprocess": info.preprocess.to_dict() if info.preprocess else None,
        "recipe": dict(info.recipe),
        "data": dict(info.data),
        "metrics": dict(info.metrics),
        "license": info.license,
        "origin": dict(info.origin),
        "weights_sha256": digest,
    }


def read_description(path: Path) -> tuple[ViTConfig, ModelInfo, str]:
    try:
        values = _read_json(path)
        if values.get("model_type") != "vitkit":
            raise WeightsError(f"{path} is not vitkit's: its model_type is {values.get('model_type')!r}")
        info = ModelInfo(
            class_names=tuple(values["class_names"]),
            preprocess=Preprocess.from_dict(values["preprocess"]) if values["preprocess"] else None,
            recipe=values["recipe"],
            data=values["data"],
            metrics=values["metrics"],
            license=values["license"],
            origin=values.get("origin", {}),
        )
        return ViTConfig.from_dict(values["model"]), info, values["weights_sha256"]
    except (KeyError, AttributeError, TypeError) as error:
        raise WeightsError(f"{path} is damaged: {type(error).__name__} {error}") from error
    except ConfigError as error:
        raise WeightsError(f"{path}: {error}") from error


def card(name: str, model: ViT, info: ModelInfo) -> str:
    """The model card, for people."""
    c = model.config
    parameters = sum(p.numel() for p in model.parameters())
    lines = [
        f"# {name}",
        "",
        f"A Vision Transformer of {parameters / 1e6:.2f} M parameters: width {c.width}, {c.depth} layers, "
        f"{c.heads} heads, patches of {c.patch_size[0]}×{c.patch_size[1]} pixels "
        f"on images of {c.image_size[0]}×{c.image_size[1]}.",
        "",
        "```python",
        "import vitkit",
        f'model = vitkit.load_model("{name}")',
        "```",
        "",
    ]
    if info.metrics:
        lines += ["## Measured", "", "| | |", "|---|---|"]
        lines += [f"| {key} | {value} |" for key, value in info.metrics.items()] + [""]
    if info.data:
        lines += ["## Trained on", "", *(f"- {key}: {_plain(value)}" for key, value in info.data.items()), ""]
    if info.preprocess:
        seen = {key: value for key, value in info.preprocess.to_dict().items() if value is not None}
        lines += ["## Preprocessing", "", *(f"- {key}: {_plain(value)}" for key, value in seen.items()), ""]
    if info.class_names:
        lines += [f"## {len(info.class_names)} classes", "", ", ".join(info.class_names), ""]
    if info.origin:
        lines += ["## Origin", "", f"- read from {info.origin.get('source')}, {info.origin.get('layout')} names"]
        lines += [f"- {line}" for key in ("assumed", "adapted") for line in info.origin.get(key, ())] + [""]
    lines += ["## Licence", "", info.license or "not stated", ""]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_plain(v)} {k}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
