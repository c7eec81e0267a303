"""The self-contained model folder: weights, and everything without which they would be used wrongly.

    model.safetensors   the weights
    config.json         architecture, class names, preprocessing, recipe, data, metrics, and the weights' SHA-256
    README.md           the model card

A run folder of `vitkit train` holds one as `model/`.
"""

from pathlib import Path
from typing import Any

from safetensors.torch import save

from vitkit.atomic import sha256, write_atomic, write_json
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError, WeightsError
from vitkit.model import ModelInfo, ViT, ViTConfig
from vitkit.version import __version__
from vitkit.weights import hub
from vitkit.weights.metadata import LoadReport
from vitkit.weights.model_card import CARD, render_model_card
from vitkit.weights.state_dict import build
from vitkit.weights.tensor_files import read_json, read_tensors

WEIGHTS, CONFIG = "model.safetensors", "config.json"


def save_model(model: ViT, folder: str | Path, info: ModelInfo | None = None) -> Path:
    """Write the folder; the weights first and the config that names their hash last, so that half a save shows."""
    info = info or model.info
    if info.class_names and len(info.class_names) != model.config.num_classes:
        raise WeightsError(f"{len(info.class_names)} class names for a model of {model.config.num_classes} classes")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = save({key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()})
    write_atomic(folder / WEIGHTS, weights)
    config = to_config_json(model.config, info, sha256(weights))
    name = folder.name if folder.name != "model" else folder.resolve().parent.name  # of a run: the run's
    write_atomic(folder / CARD, render_model_card(name, model, info).encode())
    write_json(folder / CONFIG, config)
    return folder


def find_model_dir(source: Path) -> Path | None:
    """Where a model folder of vitkit's is: here, or in the run folder that this is; None: it is none."""
    for place in (source, source / "model"):
        if (place / CONFIG).is_file():
            values = _read_json(place / CONFIG)
            if values.get("model_type") == "vitkit" or "vitkit_version" in values:
                return place
    return None


def read_metadata(source: str | Path) -> ModelInfo | None:
    """What a model folder of vitkit's says of itself; None: it is none."""
    folder = None if hub.is_name(source) else find_model_dir(Path(source))
    return read_config_json(folder / CONFIG)[1] if folder else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except WeightsError as error:
        raise WeightsError(f"{path} is damaged: {error}") from error


def read_model_dir(folder: Path) -> tuple[ViT, LoadReport]:
    config, info, expected = read_config_json(folder / CONFIG)
    path = folder / WEIGHTS
    if not path.is_file():
        raise WeightsError(f"{path} is missing: the folder is not complete")
    if sha256(path) != expected:
        raise WeightsError(f"{path} is not the file that {CONFIG} names (SHA-256 differs): damaged or exchanged")
    tensors, _ = read_tensors(path)
    model = build(config, tensors, path)
    model.info = info
    return model, LoadReport(str(folder), "vitkit", config, len(tensors))


def to_config_json(config: ViTConfig, info: ModelInfo, digest: str = "") -> dict[str, Any]:
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


def read_config_json(path: Path) -> tuple[ViTConfig, ModelInfo, str]:
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
