"""Engines: ways to run a model on resized pixels (B, H, W, C) uint8, with logits (B, K) float32 as output.

eager     torch, ready at once
compiled  torch's ahead-of-time compiler: the first start takes about a minute
onnx      ONNX Runtime
openvino  OpenVINO

Compiled and converted models are cached. The key covers the weights, the versions of all packages involved and, for
compiled code, the processor, the device and the number of threads.
All engines may be called from several threads at once.
"""

import contextlib
import copy
import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from vitkit.data.preprocess import Preprocess
from vitkit.errors import InputError, UnknownNameError, WorkError, first_line
from vitkit.export.graph import MAX_BATCH_SIZE, WRITERS, ignore_warnings
from vitkit.export.metadata import ExportMetadata
from vitkit.export.runtimes import ExportedModel, TorchModel
from vitkit.model import ViT
from vitkit.runtime.cache_dir import cache_folder, prune
from vitkit.runtime.device import bf16_inference_pays, omp_threads
from vitkit.runtime.threaded_inference import available_cores
from vitkit.version import __version__
from vitkit.weights.state_dict import hash_weights

_PACKAGES = ("onnx", "onnxscript", "onnxruntime", "openvino")
CACHE_LIMIT = 8 * 2**30  # bytes of all cached engines


class Engine(Protocol):
    name: str

    def __call__(self, pixels: np.ndarray) -> np.ndarray: ...


class CompiledModel(TorchModel):
    """Runs a compiled ViT: in bfloat16 with frozen weights if that is faster on the device, else in float32."""

    def __init__(self, model: ViT, preprocess: Preprocess) -> None:
        super().__init__(model, preprocess)
        bf16 = bf16_inference_pays(model.patch_embed.proj.weight.device)
        self.name = f"compiled {'bf16' if bf16 else 'fp32'}"
        path = compiled_path(model, preprocess)
        if not path.exists():
            _compile(model, preprocess, bf16, path)
        _touch(path)
        self.run = torch._inductor.aoti_load_package(str(path))

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        if pixels.shape[1:3] != self.preprocess.size:
            raise InputError(
                f"pixels are {pixels.shape[1:3]}, compiled for {self.preprocess.size}: use the eager engine"
            )
        return super().__call__(pixels)


class _Bf16ViT(nn.Module):
    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.model = model.to(torch.bfloat16)

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images.to(torch.bfloat16)).float()


def compiled_path(model: ViT, preprocess: Preprocess) -> Path:
    """Return the path of the compiled model in the cache, whether it exists or not."""
    bf16 = bf16_inference_pays(model.patch_embed.proj.weight.device)
    return cache_folder() / "engines" / f"{cache_key(model, preprocess.size, bf16, machine(model))}.pt2"


def cache_key(model: ViT, *parts: object) -> str:
    """Return a key that changes with the weights, the architecture, the versions of the packages, and `parts`."""
    versions = __version__, torch.__version__, [_version(package) for package in _PACKAGES]
    text = json.dumps([hash_weights(model), model.config.to_dict(), versions, parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def machine(model: ViT) -> tuple[object, ...]:
    """Return what compiled code and measured speeds depend on: processor, device and number of threads."""
    device = model.patch_embed.proj.weight.device
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    capabilities = dict(torch.cpu.get_capabilities())
    return platform.machine(), capabilities, name, torch.get_num_threads(), omp_threads(), available_cores()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def make_engine(name: str, model: ViT, preprocess: Preprocess) -> Engine:
    """Return the engine of this name for the model. Some are compiled or converted on first use."""
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ["auto", *ENGINES])
    return ENGINES[name](model, preprocess)


def _compile(model: ViT, preprocess: Preprocess, bf16: bool, path: Path) -> None:
    weight = model.patch_embed.proj.weight
    example = torch.zeros(2, preprocess.channels, *preprocess.size, device=weight.device, dtype=weight.dtype)
    traced: nn.Module = _Bf16ViT(copy.deepcopy(model)).eval() if bf16 else model
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{os.getpid()}.{path.name}")
    try:
        with ignore_warnings(), torch.no_grad():
            batch = torch.export.Dim("batch", min=1, max=MAX_BATCH_SIZE)
            program = torch.export.export(traced, (example,), dynamic_shapes=({0: batch},))
            # Freezing packs weights for bf16 tiles. In float32 it was slower, on AVX2.
            config = {"freezing": bf16}
            torch._inductor.aoti_compile_and_package(program, package_path=str(temporary), inductor_configs=config)
    except Exception as error:  # mostly a missing C++ compiler, which torch reports in many ways
        temporary.unlink(missing_ok=True)
        reason = first_line(error)[:200]
        raise WorkError(f"the model cannot be compiled here ({reason}): use --engine eager") from error
    os.replace(temporary, path)


def _exported_engine(to: str, suffix: str) -> Callable[[ViT, Preprocess], ExportedModel]:
    """Return a function that opens the model in the runtime `to`, converted on first use."""

    def make(model: ViT, preprocess: Preprocess) -> ExportedModel:
        metadata = ExportMetadata.from_model(model, preprocess)
        folder = cache_folder() / "engines" / cache_key(model, to, metadata.to_strings())
        path = folder / f"model{suffix}"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            temporary = folder / f"new.{os.getpid()}{suffix}"
            WRITERS[to](copy.deepcopy(model).cpu().float(), metadata, temporary)
            if to == "openvino":
                os.replace(temporary.with_suffix(".bin"), path.with_suffix(".bin"))
            os.replace(temporary, path)
        _touch(folder)
        return ExportedModel(path)

    return make


def _touch(entry: Path) -> None:
    """Mark a cache entry as used, and remove the least recently used ones above the limit."""
    with contextlib.suppress(OSError):  # the cache may be read-only
        entry.touch()
        prune(entry.parent, keep=entry, limit=CACHE_LIMIT)


ENGINES: dict[str, Callable[[ViT, Preprocess], Engine]] = {
    "eager": TorchModel,
    "compiled": CompiledModel,
    "openvino": _exported_engine("openvino", ".xml"),
    "onnx": _exported_engine("onnx", ".onnx"),
}
