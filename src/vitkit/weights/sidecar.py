"""What stands beside foreign weights or is given with them: class names, preprocessing, their library's config."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError, WeightsError
from vitkit.model import ViTConfig
from vitkit.weights import hf_config, timm_config
from vitkit.weights.metadata import SidecarConfig
from vitkit.weights.tensor_files import STANDARD, read_json

_LISTS = ("class_names", "names", "name", "labels", "label_names")


def read_sidecar(weights: Path) -> SidecarConfig:
    """What the folder tells, where the file has a name that belongs to its folder's config."""
    folder = weights.parent
    if weights.name not in STANDARD:
        return SidecarConfig()
    try:
        if (folder / "open_clip_config.json").is_file() and weights.name.startswith("open_clip"):
            return _checked(_read_open_clip(read_json(folder / "open_clip_config.json")), folder)
        if not (folder / "config.json").is_file():
            return SidecarConfig()
        values = read_json(folder / "config.json")
        if "architecture" in values:
            return _checked(timm_config.read_config(values), folder)
        processor = folder / "preprocessor_config.json"
        told = hf_config.read_config(values, read_json(processor) if processor.is_file() else None, folder)
        return _checked(told, folder)
    except ConfigError as error:
        raise WeightsError(f"{folder}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"the config beside {weights} is damaged: {type(error).__name__} {error}") from error


def _checked(told: SidecarConfig, folder: Path) -> SidecarConfig:
    """Values of the right type, so that what follows can rely on them."""
    ViTConfig.from_dict({**_ANY, **{k: v for k, v in told.config.items() if k not in ("image_size", "patch_size")}})
    for name in ("image_size", "patch_size"):
        if name in told.config:
            ViTConfig.from_dict({**_ANY, "patch_size": 1, "image_size": told.config[name]})
    return told


# A config that any single value fits into
_ANY = {"width": 768, "heads": 1, "head_width": 4, "pooling": "mean"}


def _read_open_clip(values: Mapping[str, Any]) -> SidecarConfig:
    model, seen = values.get("model_cfg") or {}, values.get("preprocess_cfg") or {}
    tower = model.get("vision_cfg") or {}
    config: dict[str, Any] = {"mlp": "quick_gelu" if model.get("quick_gelu") else "gelu", "norm_eps": 1e-5}
    if isinstance(tower.get("width"), int):
        config["heads"] = tower["width"] // tower.get("head_width", 64)
    found = None
    if "mean" in seen and isinstance(tower.get("image_size"), int):
        found = Preprocess.from_dict(
            {
                "size": (tower["image_size"],) * 2, "mean": tuple(seen["mean"]), "std": tuple(seen["std"]),
                "interpolation": seen.get("interpolation", "bicubic"), "crop_fraction": 1.0,
                "fit": {"squash": "squash", "longest": "pad"}.get(seen.get("resize_mode", ""), "crop"),
            }
        )  # fmt: skip
    return SidecarConfig(config, (), found)


def class_names(given: Sequence[str] | str | Path) -> tuple[str, ...]:
    """Names as they are, or of a file: a JSON list, {"0": name, …}, an object with such a list, or a name per line."""
    if not isinstance(given, str | Path):
        return tuple(given)
    path = Path(given)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise WeightsError(f"no class names at {path}: give a JSON file or one name per line") from error
    if path.suffix != ".json":
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    try:
        names = _listed(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not readable as JSON: {error}") from error
    if not names:
        raise WeightsError(f'{path} holds no class names: expected a list, {{"0": name, …}} or {{"class_names": […]}}')
    return names


def _listed(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        for key in _LISTS:
            if isinstance(value.get(key), list):
                return _listed(value[key])
        if sorted(value, key=_number) == [str(i) for i in range(len(value))]:
            return _listed([value[str(i)] for i in range(len(value))])
        return ()
    return tuple(value) if isinstance(value, list) and all(isinstance(v, str) for v in value) else ()


def _number(key: str) -> int:
    return int(key) if key.isdecimal() and key.isascii() else -1


def preprocess(given: Preprocess | Mapping[str, Any] | str | Path) -> Preprocess:
    if isinstance(given, Preprocess):
        return given
    values = given if isinstance(given, Mapping) else read_json(Path(given))
    try:
        return Preprocess.from_dict(values)
    except ConfigError as error:
        raise WeightsError(f"preprocessing: {error}") from error
