"""The metadata inside an exported file: class names, preprocessing and input format. With it, one file is enough.

An ONNX file stores it as metadata properties, an OpenVINO file as runtime information: one JSON entry per field.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.data.preprocess import Preprocess
from vitkit.errors import InputError, UsageError, WeightsError
from vitkit.model import ViT
from vitkit.version import __version__
from vitkit.weights.state_dict import hash_weights

PREFIX = "vitkit"
SUFFIXES = {".onnx": "onnx", ".xml": "openvino"}
_STORED_AS = {"input_kind": "takes", "dynamic_size": "any_size", "max_size": "largest"}  # field → name in the file


@dataclass(frozen=True)
class ExportMetadata:
    """Describes an exported graph: its input, its classes and the model that it was made from."""

    class_names: tuple[str, ...]
    preprocess: Preprocess  # at the image size of the graph
    patch_size: tuple[int, int]
    input_kind: str  # "images": normalised float32 (B, C, H, W); "pixels": resized uint8 (B, H, W, C)
    dynamic_size: bool  # False: the graph accepts only the size of `preprocess`
    max_size: tuple[int, int]  # (height, width) in pixels
    precision: str  # "fp32" or "int8"
    weights_sha256: str  # of the weights before export
    vitkit_version: str

    @classmethod
    def from_model(
        cls, model: ViT, preprocess: Preprocess, input_kind: str = "images", dynamic_size: bool = False
    ) -> "ExportMetadata":
        """Return the metadata of a float32 export. A dynamic size is limited to 64 patches or twice the grid."""
        patch, size = model.config.patch_size, preprocess.size
        grid = [max(64, 2 * s // p) for s, p in zip(size, patch, strict=True)]
        return cls(
            class_names=tuple(model.info.class_names),
            preprocess=preprocess,
            patch_size=patch,
            input_kind=input_kind,
            dynamic_size=dynamic_size,
            max_size=(grid[0] * patch[0], grid[1] * patch[1]) if dynamic_size else size,
            precision="fp32",
            weights_sha256=hash_weights(model),
            vitkit_version=__version__,
        )

    def to_strings(self) -> dict[str, str]:
        values = {**vars(self), "preprocess": self.preprocess.to_dict()}
        return {_entry(name): json.dumps(value, ensure_ascii=False) for name, value in values.items()}

    @classmethod
    def from_strings(cls, strings: Mapping[str, str], path: Path) -> "ExportMetadata":
        try:
            values: dict[str, Any] = {name: json.loads(strings[_entry(name)]) for name in cls.__dataclass_fields__}
            pairs = {name: tuple(values[name]) for name in ("class_names", "patch_size", "max_size")}
            return cls(**{**values, **pairs, "preprocess": Preprocess.from_dict(values["preprocess"])})
        except (KeyError, json.JSONDecodeError, TypeError, UsageError) as error:
            raise WeightsError(
                f"{path} has no readable class names and preprocessing ({type(error).__name__}): "
                "export the model again with `vitkit convert`"
            ) from error

    def prepare_input(self, pixels: np.ndarray) -> np.ndarray:
        """Convert resized pixels (B, H, W, C) uint8 to the input of the graph, with the arithmetic of `normalize`."""
        self.check_pixels(pixels)
        if self.input_kind == "pixels":
            return np.ascontiguousarray(pixels)
        mean, std = (np.array(v, dtype=np.float32) for v in (self.preprocess.mean, self.preprocess.std))
        normal = (pixels.astype(np.float32) / np.float32(255) - mean) / std
        return np.ascontiguousarray(normal.transpose(0, 3, 1, 2))

    def check_pixels(self, pixels: np.ndarray) -> None:
        """Raise an error for pixels that the graph cannot accept: runtimes may crash, or return wrong numbers."""
        size, channels = pixels.shape[1:3], self.preprocess.channels
        if pixels.ndim != 4 or pixels.dtype != np.uint8 or pixels.shape[3] != channels:
            raise InputError(
                f"pixels are {pixels.dtype} {pixels.shape}: expected uint8 (batch, height, width, {channels})"
            )
        if not self.dynamic_size and size != self.preprocess.size:
            raise InputError(
                f"pixels are {size}, this export takes {self.preprocess.size}: resize, or export with --dynamic-size"
            )
        if any(s % p or s > limit for s, p, limit in zip(size, self.patch_size, self.max_size, strict=True)):
            raise InputError(f"pixels are {size}: expected multiples of {self.patch_size} up to {self.max_size}")


def find_exported(source: str | Path, image_size: int | tuple[int, int] | None = None) -> Path | None:
    """Return the graph file that `source` is or contains, or None if it is not an export.

    If a folder has graphs of several sizes, `image_size` selects one.
    """
    path = Path(source)
    if path.suffix in SUFFIXES and path.is_file():
        return path
    if not path.is_dir() or (path / "config.json").exists():
        return None
    files = {p.stem: p for p in sorted(path.iterdir()) if p.suffix in SUFFIXES and p.stem.startswith("model")}
    if len(files) < 2:
        return next(iter(files.values()), None)
    wanted = "" if image_size is None else file_stem(image_size)
    if wanted not in files:
        raise InputError(f"{path} has exports of several sizes ({', '.join(files)}): select one with --size")
    return files[wanted]


def file_stem(image_size: int | tuple[int, int]) -> str:
    """Return the name, without suffix, of a graph file in an export of several sizes."""
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    return f"model_{height}x{width}"


def _entry(name: str) -> str:
    return f"{PREFIX}.{_STORED_AS.get(name, name)}"
