"""The self-contained model folder: weights and the metadata that is needed to use them correctly.

    model.safetensors   the weights
    config.json         architecture, class names, preprocessing, recipe, data, metrics, and the weights' SHA-256
    README.md           the model card
    images.safetensors  hashes of the training and validation images, so that `vitkit eval` recognises them (optional)

`config_sha256` in config.json is the SHA-256 of its other entries. An edited config is refused until this entry is
deleted; without it, as in folders of older versions, nothing is checked.

A run folder of `vitkit train` contains one as `model/`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.numpy
from safetensors import SafetensorError
from safetensors.torch import save

from vitkit.atomic import sha256, write_atomic, write_json
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError, WeightsError
from vitkit.model import ModelInfo, ViT, ViTConfig, create_model, find_model_class
from vitkit.version import __version__
from vitkit.weights import hub
from vitkit.weights.metadata import LoadReport
from vitkit.weights.model_card import CARD, render_model_card
from vitkit.weights.state_dict import build_model
from vitkit.weights.tensor_files import read_json, read_tensors

WEIGHTS, CONFIG, IMAGES = "model.safetensors", "config.json", "images.safetensors"
_CHECKSUM = "config_sha256"


@dataclass(frozen=True)
class ModelDir:
    """A model folder whose config.json has been read. The digest is empty while the model is in training."""

    path: Path
    config: ViTConfig
    info: ModelInfo
    weights_sha256: str
    class_name: str = ""  # of a subclass of ViT
    class_module: str = ""

    @property
    def model_class(self) -> type[ViT]:
        return find_model_class(self.class_name, self.class_module) if self.class_name else ViT


def save_model(model: ViT, folder: str | Path, info: ModelInfo | None = None) -> Path:
    """Write a model folder with the metadata `info` (default: `model.info`) and return its path.

    A subclass of ViT is stored by its name: import it before you load the folder. A model whose class and config do not
    define all of its tensors, such as one with a replaced head, is refused. The config, which contains the digest of
    the weights, is written last: an interrupted save is detected.
    """
    info = info or model.info
    if info.class_names and len(info.class_names) != model.config.num_classes:
        raise WeightsError(f"{len(info.class_names)} class names for a model of {model.config.num_classes} classes")
    _check_defined(model)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    weights = save({key: tensor.detach().cpu().contiguous() for key, tensor in model.state_dict().items()})
    write_atomic(folder / WEIGHTS, weights)
    name = folder.name if folder.name != "model" else folder.resolve().parent.name  # a run's model has the run's name
    write_atomic(folder / CARD, render_model_card(name, model, info))
    if info.image_keys:
        write_atomic(folder / IMAGES, safetensors.numpy.save(dict(info.image_keys)))
    else:
        (folder / IMAGES).unlink(missing_ok=True)
    write_json(folder / CONFIG, to_config_json(model, info, sha256(weights)))
    return folder


def _check_defined(model: ViT) -> None:
    """Raise if the class and the config of the model do not define the tensors that it has."""
    defined = create_model(model.config, device="meta", model_class=type(model)).state_dict()
    found = model.state_dict()
    for name in (*found, *defined):
        if name not in defined or name not in found or found[name].shape != defined[name].shape:
            state = "has another shape in" if name in defined and name in found else "is not in both the model and"
            raise WeightsError(
                f"cannot save this {type(model).__name__}: {name} {state} the architecture of its config: define "
                "your changes in a subclass of ViT, or use reset_classifier for another number of classes"
            )


def find_model_dir(source: Path) -> ModelDir | None:
    """Return the model folder at `source` or, for a run folder, below it; None if there is none."""
    for path in (source, source / "model"):
        if (path / CONFIG).is_file():
            values = _read_json(path / CONFIG)
            if values.get("model_type") == "vitkit" or "vitkit_version" in values:
                return _parse(path / CONFIG, values)
    return None


def read_config_json(path: Path) -> ModelDir:
    """Return the contents of a config.json that `to_config_json` made."""
    return _parse(path, _read_json(path))


def read_metadata(source: str | Path) -> ModelInfo | None:
    """Return the metadata of a local model folder or run folder; None for anything else."""
    model_dir = None if hub.is_name(source) else find_model_dir(Path(source))
    return model_dir.info if model_dir else None


def load_model_dir(model_dir: ModelDir) -> tuple[ViT, LoadReport]:
    """Return the model and a report. Raise if the weights do not match the digest in config.json."""
    path = model_dir.path / WEIGHTS
    if not path.is_file():
        raise WeightsError(f"{path} is missing: the model folder is incomplete")
    if sha256(path) != model_dir.weights_sha256:
        raise WeightsError(f"{path} is not the file that {CONFIG} describes (SHA-256 differs): damaged or replaced")
    tensors, _ = read_tensors(path)
    model, _ = build_model(model_dir.config, tensors, path, model_class=model_dir.model_class)
    model.info = model_dir.info.replace(image_keys=_read_image_keys(model_dir.path / IMAGES))
    return model, LoadReport(str(model_dir.path), "vitkit", model_dir.config, len(tensors))


def to_config_json(model: ViT, info: ModelInfo, weights_sha256: str = "") -> dict[str, Any]:
    """Return the contents of config.json."""
    own = type(model)
    values = {
        "model_type": "vitkit",
        "vitkit_version": __version__,
        **({} if own is ViT else {"class": own.__qualname__, "module": own.__module__}),
        "model": model.config.to_dict(),
        "class_names": list(info.class_names),
        "preprocess": info.preprocess.to_dict() if info.preprocess else None,
        "recipe": dict(info.recipe),
        "data": dict(info.data),
        "metrics": dict(info.metrics),
        "license": info.license,
        "origin": dict(info.origin),
        "weights_sha256": weights_sha256,
    }
    as_read = json.loads(json.dumps(values))  # keys that are numbers become strings
    return {**values, _CHECKSUM: _checksum(as_read)}


def _checksum(values: dict[str, Any]) -> str:
    """Return the SHA-256 of all entries but the checksum, in an order and layout that editors cannot change."""
    others = {name: value for name, value in values.items() if name != _CHECKSUM}
    return sha256(json.dumps(others, sort_keys=True, separators=(",", ":")).encode())


def _read_image_keys(path: Path) -> dict[str, Any]:
    try:
        return dict(safetensors.numpy.load_file(path)) if path.is_file() else {}
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path} is damaged ({error}): delete it to evaluate without it") from error


def _parse(path: Path, values: dict[str, Any]) -> ModelDir:
    try:
        if values.get("model_type") != "vitkit":
            raise WeightsError(f"{path} is not vitkit's: its model_type is {values.get('model_type')!r}")
        if _CHECKSUM in values and values[_CHECKSUM] != _checksum(values):
            how = f"restore it, or delete its entry {_CHECKSUM} to accept the change"
            raise WeightsError(f"{path} was changed after it was saved (SHA-256 differs): {how}")
        info = ModelInfo(
            class_names=tuple(values["class_names"]),
            preprocess=Preprocess.from_dict(values["preprocess"]) if values["preprocess"] else None,
            recipe=values["recipe"],
            data=values["data"],
            metrics=values["metrics"],
            license=values["license"],
            origin=values.get("origin", {}),
        )
        config, own_class = ViTConfig.from_dict(values["model"]), (values.get("class", ""), values.get("module", ""))
        return ModelDir(path.parent, config, info, values["weights_sha256"], *own_class)
    except (KeyError, AttributeError, TypeError) as error:
        raise WeightsError(f"{path} is damaged: {type(error).__name__} {error}") from error
    except ConfigError as error:
        raise WeightsError(f"{path}: {error}") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except WeightsError as error:
        raise WeightsError(f"{path} is damaged: {error}") from error
