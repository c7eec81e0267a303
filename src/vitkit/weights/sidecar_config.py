"""Read the files next to the weights of another library: config, class names, preprocessing."""

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

_LIST_KEYS = ("class_names", "names", "name", "labels", "label_names")


def read_sidecar(weights: Path) -> SidecarConfig:
    """Return the metadata in the folder of a weights file. It is empty if the file has no standard name."""
    folder = weights.parent
    if weights.name not in STANDARD:
        return SidecarConfig()
    try:
        if (folder / "open_clip_config.json").is_file() and weights.name.startswith("open_clip"):
            return _checked(_read_open_clip(read_json(folder / "open_clip_config.json")))
        if not (folder / "config.json").is_file():
            return SidecarConfig()
        values = read_json(folder / "config.json")
        if "architecture" in values:
            return _checked(timm_config.read_config(values, folder))
        processor = folder / "preprocessor_config.json"
        return _checked(hf_config.read_config(values, read_json(processor) if processor.is_file() else None, folder))
    except ConfigError as error:
        raise WeightsError(f"{folder}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"the config next to {weights} is damaged: {type(error).__name__} {error}") from error


def _checked(sidecar: SidecarConfig) -> SidecarConfig:
    """Return the metadata unchanged. Raise ConfigError if a value has a wrong type or range."""
    ViTConfig.from_dict(
        {**_PERMISSIVE, **{k: v for k, v in sidecar.config.items() if k not in ("image_size", "patch_size")}}
    )
    for name in ("image_size", "patch_size"):
        if name in sidecar.config:
            ViTConfig.from_dict({**_PERMISSIVE, "patch_size": 1, "image_size": sidecar.config[name]})
    return sidecar


# A config in which any single field can be replaced
_PERMISSIVE = {"width": 768, "heads": 1, "head_width": 4, "pooling": "mean"}


def _read_open_clip(values: Mapping[str, Any]) -> SidecarConfig:
    model, normal = values.get("model_cfg") or {}, values.get("preprocess_cfg") or {}
    tower = model.get("vision_cfg") or {}
    config: dict[str, Any] = {"mlp": "quick_gelu" if model.get("quick_gelu") else "gelu", "norm_eps": 1e-5}
    if isinstance(tower.get("width"), int):
        config["heads"] = tower["width"] // tower.get("head_width", 64)
    preprocess = None
    if "mean" in normal and isinstance(tower.get("image_size"), int):
        preprocess = Preprocess.from_dict(
            {
                "size": (tower["image_size"],) * 2, "mean": tuple(normal["mean"]), "std": tuple(normal["std"]),
                "interpolation": normal.get("interpolation", "bicubic"), "crop_fraction": 1.0,
                "fit": {"squash": "squash", "longest": "pad"}.get(normal.get("resize_mode", ""), "crop"),
            }
        )  # fmt: skip
    return SidecarConfig(config, (), preprocess)


def read_class_names(source: Sequence[str] | str | Path) -> tuple[str, ...]:
    """Return a sequence of names as a tuple, or read the names from a file; a string is a path.

    A .json file contains a list, {"0": name, …}, or an object with a list under a key such as "class_names". Any other
    file contains one name per line.
    """
    if not isinstance(source, str | Path):
        return tuple(source)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WeightsError(f"no class names in {path}: give a JSON file, or one name per line") from error
    if path.suffix != ".json":
        return tuple(line.strip() for line in text.splitlines() if line.strip())
    try:
        names = _names_in(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not valid JSON: {error}") from error
    if not names:
        raise WeightsError(f'{path} has no class names: expected a list, {{"0": name, …}} or {{"class_names": […]}}')
    return names


def _names_in(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        for key in _LIST_KEYS:
            if isinstance(value.get(key), list):
                return _names_in(value[key])
        if sorted(value, key=_number) == [str(i) for i in range(len(value))]:
            return _names_in([value[str(i)] for i in range(len(value))])
        return ()
    return tuple(value) if isinstance(value, list) and all(isinstance(v, str) for v in value) else ()


def _number(key: str) -> int:
    return int(key) if key.isdecimal() and key.isascii() else -1


def read_preprocess(source: Preprocess | Mapping[str, Any] | str | Path) -> Preprocess:
    """Return preprocessing settings as given, from a dictionary, or from a JSON file."""
    if isinstance(source, Preprocess):
        return source
    values = source if isinstance(source, Mapping) else read_json(Path(source))
    try:
        return Preprocess.from_dict(values)
    except ConfigError as error:
        raise WeightsError(f"invalid preprocessing settings: {error}") from error
