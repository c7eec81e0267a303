"""What an exported graph says about itself: with it, one file answers as the model folder did, without the folder.

An ONNX file keeps it in its metadata, an OpenVINO file in its runtime information: one entry per field, in JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.data.preprocess import Preprocess
from vitkit.errors import InputError, UsageError, WeightsError

PREFIX = "vitkit"
SUFFIXES = {".onnx": "onnx", ".xml": "openvino"}


@dataclass(frozen=True)
class ExportInfo:
    class_names: tuple[str, ...]
    preprocess: Preprocess  # of the size that the graph was made for
    patch_size: tuple[int, int]
    takes: str  # "images": float32 (B, C, H, W), normalised; "pixels": uint8 (B, H, W, C), resized and no more
    any_size: bool  # or only that of `preprocess`
    largest: tuple[int, int]  # (height, width) in pixels
    precision: str  # "fp32" or "int8"
    weights_sha256: str  # of the tensors that were exported
    vitkit_version: str

    def to_strings(self) -> dict[str, str]:
        values = {**vars(self), "preprocess": self.preprocess.to_dict()}
        return {f"{PREFIX}.{key}": json.dumps(value, ensure_ascii=False) for key, value in values.items()}

    @classmethod
    def from_strings(cls, strings: Mapping[str, str], path: Path) -> "ExportInfo":
        values = {k.removeprefix(f"{PREFIX}."): v for k, v in strings.items() if k.startswith(f"{PREFIX}.")}
        try:
            read: dict[str, Any] = {key: json.loads(values[key]) for key in cls.__dataclass_fields__}
            pairs = {key: tuple(read[key]) for key in ("class_names", "patch_size", "largest")}
            return cls(**{**read, **pairs, "preprocess": Preprocess.from_dict(read["preprocess"])})
        except (KeyError, json.JSONDecodeError, TypeError, UsageError) as error:
            raise WeightsError(
                f"{path} brings no class names and preprocessing that can be read ({type(error).__name__}): "
                "export the model again with `vitkit convert`"
            ) from error

    def feed(self, pixels: np.ndarray) -> np.ndarray:
        """(B, H, W, C) uint8, resized → what the graph takes. The same steps in the same order as `normalize`."""
        self.check(pixels)
        if self.takes == "pixels":
            return np.ascontiguousarray(pixels)
        mean, std = (np.array(v, dtype=np.float32) for v in (self.preprocess.mean, self.preprocess.std))
        normal = (pixels.astype(np.float32) / np.float32(255) - mean) / std
        return np.ascontiguousarray(normal.transpose(0, 3, 1, 2))

    def check(self, pixels: np.ndarray) -> None:
        """A runtime would say it in its own words, or crash, or answer."""
        size, channels = pixels.shape[1:3], self.preprocess.channels
        if pixels.ndim != 4 or pixels.dtype != np.uint8 or pixels.shape[3] != channels:
            raise InputError(
                f"pixels are {pixels.dtype} {pixels.shape}: expected uint8 (batch, height, width, {channels})"
            )
        if not self.any_size and size != self.preprocess.size:
            raise InputError(
                f"pixels are {size}, this export takes {self.preprocess.size}: resize, or export with any size"
            )
        if any(s % p or s > limit for s, p, limit in zip(size, self.patch_size, self.largest, strict=True)):
            raise InputError(f"pixels are {size}: expected multiples of {self.patch_size} up to {self.largest}")


def find_exported(source: str | Path, size: int | tuple[int, int] | None = None) -> Path | None:
    """The graph file that `source` is or holds; None where it is no export. Of several sizes, the one asked for."""
    path = Path(source)
    if path.suffix in SUFFIXES and path.is_file():
        return path
    if not path.is_dir() or (path / "config.json").exists():
        return None
    found = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.stem.startswith("model"))
    if len(found) < 2:
        return found[0] if found else None
    wanted = None if size is None else file_stem((size, size) if isinstance(size, int) else size)
    named = {p.stem: p for p in found}
    if wanted is None or wanted not in named:
        raise InputError(f"{path} holds exports of several sizes ({', '.join(named)}): say which")
    return named[wanted]


def file_stem(size: tuple[int, int]) -> str:
    """Of a file that is one of several, each with its own size baked in."""
    return f"model_{size[0]}x{size[1]}"
