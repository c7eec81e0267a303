"""The self-contained model folder: weights, and everything without which they would be used wrongly.

    model.safetensors   the weights
    config.json         architecture, class names, preprocessing, recipe, data, metrics, and the weights' SHA-256
    README.md           the model card

A run folder of `vitkit train` holds one as `model/`.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

import vitkit
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError, WeightsError
from vitkit.files import sha256, write_atomic, write_json
from vitkit.model import ViT, ViTConfig, create_model

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


@dataclass(frozen=True)
class ModelInfo:
    """What travels with the weights. `load_model` leaves it in `model.info`; `save_model` writes it back."""

    class_names: Sequence[str] = ()
    preprocess: Preprocess | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # name, fingerprint and counts of the training data
    metrics: Mapping[str, Any] = field(default_factory=dict)
    license: str = ""

    def replace(self, **changes: Any) -> "ModelInfo":
        return dataclasses.replace(self, **changes)


def save_model(model: ViT, folder: str | Path, info: ModelInfo | None = None) -> Path:
    """Write the folder; the weights first and the config that names their hash last, so that half a save shows."""
    info = info or model.info or ModelInfo()
    if info.class_names and len(info.class_names) != model.config.num_classes:
        raise WeightsError(f"{len(info.class_names)} class names for a model of {model.config.num_classes} classes")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = save({key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()})
    write_atomic(folder / WEIGHTS, weights)
    config = _to_json(model.config, info, sha256(weights))
    name = folder.name if folder.name != "model" else folder.resolve().parent.name  # of a run: the run's
    write_atomic(folder / CARD, card(name, model, info).encode())
    write_json(folder / CONFIG, config)
    return folder


def load_model(source: str | Path, device: str | torch.device = "cpu") -> ViT:
    """The model of a model folder or run folder, in eval mode, with its `info`; refused where anything does not fit."""
    folder = _model_folder(source)
    config, info, expected = _from_json(folder)
    path = folder / WEIGHTS
    if not path.is_file():
        raise WeightsError(f"{path} is missing: the folder is not complete")
    if sha256(path) != expected:
        raise WeightsError(f"{path} is not the file that {CONFIG} names (SHA-256 differs): damaged or exchanged")
    model = create_model(config, device="meta")
    try:
        tensors = load_file(path, device=str(device))
    except SafetensorError as error:
        raise WeightsError(f"{path} is not a readable safetensors file: {error}") from error
    _check_tensors(model, tensors, path)
    model.load_state_dict(tensors, strict=True, assign=True)
    model.info = info
    return model.eval()


def names_and_preprocess(model: ViT, source: object) -> tuple[Sequence[str], Preprocess]:
    """What a model needs in order to answer; refused where it brings them not, for its answers would mean nothing."""
    info: ModelInfo | None = model.info
    if info is None or info.preprocess is None or not info.class_names:
        raise WeightsError(f"{source} brings no class names or no preprocessing: its answers would have no meaning")
    return info.class_names, info.preprocess


def read_config(source: str | Path) -> ViTConfig:
    return _from_json(_model_folder(source))[0]


def _model_folder(source: str | Path) -> Path:
    folder = Path(source)
    for place in (folder, folder / "model"):
        if (place / CONFIG).is_file():
            return place
    if not folder.exists():
        raise WeightsError(f"no model at {folder}: give a model folder or a run folder of `vitkit train`")
    raise WeightsError(f"{folder} is not a model folder: it holds no {CONFIG}")


def _check_tensors(model: ViT, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    expected = model.state_dict()
    if missing := sorted(expected.keys() - tensors.keys()):
        raise WeightsError(f"{path} lacks {len(missing)} tensors that the config calls for, the first is {missing[0]}")
    if extra := sorted(tensors.keys() - expected.keys()):
        raise WeightsError(f"{path} holds {len(extra)} tensors that the config has no place for, such as {extra[0]}")
    for key, tensor in tensors.items():
        if tensor.shape != expected[key].shape:
            raise WeightsError(f"{path}: {key} is {tuple(tensor.shape)}, expected {tuple(expected[key].shape)}")
        if not tensor.isfinite().all():
            raise WeightsError(f"{path}: {key} holds NaN or infinite values")


def _to_json(config: ViTConfig, info: ModelInfo, digest: str) -> dict[str, Any]:
    return {
        "model_type": "vitkit",
        "vitkit_version": vitkit.__version__,
        "model": config.to_dict(),
        "class_names": list(info.class_names),
        "preprocess": info.preprocess.to_dict() if info.preprocess else None,
        "recipe": dict(info.recipe),
        "data": dict(info.data),
        "metrics": dict(info.metrics),
        "license": info.license,
        "weights_sha256": digest,
    }


def _from_json(folder: Path) -> tuple[ViTConfig, ModelInfo, str]:
    path = folder / CONFIG
    try:
        values = json.loads(path.read_text())
        if values.get("model_type") != "vitkit":
            raise WeightsError(f"{path} is not vitkit's: its model_type is {values.get('model_type')!r}")
        info = ModelInfo(
            class_names=tuple(values["class_names"]),
            preprocess=Preprocess.from_dict(values["preprocess"]) if values["preprocess"] else None,
            recipe=values["recipe"],
            data=values["data"],
            metrics=values["metrics"],
            license=values["license"],
        )
        return ViTConfig.from_dict(values["model"]), info, values["weights_sha256"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, AttributeError, TypeError) as error:
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
    lines += ["## Licence", "", info.license or "not stated", ""]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_plain(v)} {k}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
