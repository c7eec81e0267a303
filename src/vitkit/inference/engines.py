"""Ways to run a model behind one interface: (B, H, W, C) uint8 pixels, resized → (B, K) float32 logits.

eager     torch, as it is: ready at once
compiled  torch's compiler, ahead of time: takes a minute or so once, then lies in the cache
onnx      ONNX Runtime
openvino  OpenVINO

What an engine has to prepare is kept in the user's cache under a key made of the weights and everything else that the
result depends on, so that the second start is quick. All of them may be called from several threads at once.
"""

import contextlib
import copy
import hashlib
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
from vitkit.export.graph import WRITERS, quiet
from vitkit.export.metadata import ExportInfo
from vitkit.export.runtimes import Runtime, load_exported
from vitkit.model import ViT
from vitkit.runtime.cache import cache_folder, prune
from vitkit.runtime.data_parallel import ThreadedInference
from vitkit.runtime.device import bf16_inference_pays
from vitkit.version import __version__
from vitkit.weights.state_dict import hash_weights

LIMIT = 8 * 2**30  # bytes of prepared engines that are kept


class Engine(Protocol):
    name: str

    def __call__(self, pixels: np.ndarray) -> np.ndarray: ...


class Exported:
    """A graph in its runtime, wherever its file came from."""

    def __init__(self, path: Path) -> None:
        self.runtime: Runtime = load_exported(path)
        self.info = self.runtime.info
        self.name = f"{'openvino' if path.suffix == '.xml' else 'onnx'} {self.info.precision}"

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        return self.runtime(self.info.feed(pixels))


class Eager:
    def __init__(self, model: ViT, preprocess: Preprocess) -> None:
        self.model, self.preprocess, self.name = model, preprocess, "eager"
        self.run: Callable[[Tensor], Tensor] = ThreadedInference(model)

    @torch.inference_mode()
    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        weight = self.model.patch_embed.proj.weight
        batch = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(weight.device)
        return self.run(self.preprocess.normalize(batch).to(weight.dtype)).float().cpu().numpy()


class Compiled(Eager):
    """In bf16 with frozen weights where the processor multiplies it faster than float32."""

    def __init__(self, model: ViT, preprocess: Preprocess) -> None:
        super().__init__(model, preprocess)
        low = bf16_inference_pays(model.patch_embed.proj.weight.device)
        self.name = f"compiled {'bf16' if low else 'fp32'}"
        path = compiled_path(model, preprocess)
        if not path.exists():
            _compile(model, preprocess, low, path)
        _used(path)
        self.run = torch._inductor.aoti_load_package(str(path))

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        if pixels.shape[1:3] != self.preprocess.size:
            raise InputError(
                f"pixels are {pixels.shape[1:3]}, compiled for {self.preprocess.size}: use the eager engine"
            )
        return super().__call__(pixels)


class _InBf16(nn.Module):
    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.model = model.to(torch.bfloat16)

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images.to(torch.bfloat16)).float()


def compiled_path(model: ViT, preprocess: Preprocess) -> Path:
    device = model.patch_embed.proj.weight.device
    versions = __version__, torch.__version__
    machine = platform.machine(), dict(torch.cpu.get_capabilities()), device.type, bf16_inference_pays(device)
    return cache_folder() / "engines" / f"{key(model, versions, preprocess.size, machine)}.pt2"


def _compile(model: ViT, preprocess: Preprocess, low: bool, path: Path) -> None:
    weight = model.patch_embed.proj.weight
    example = torch.zeros(2, preprocess.channels, *preprocess.size, device=weight.device, dtype=weight.dtype)
    traced: nn.Module = _InBf16(copy.deepcopy(model)).eval() if low else model
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{os.getpid()}.{path.name}")
    try:
        with quiet(), torch.no_grad():
            batch = torch.export.Dim("batch", min=1, max=65_535)
            program = torch.export.export(traced, (example,), dynamic_shapes=({0: batch},))
            # Frozen weights are packed for bf16 tiles; float32 was slower with them, on AVX2.
            torch._inductor.aoti_compile_and_package(program, package_path=str(new), inductor_configs={"freezing": low})
    except Exception as error:  # a missing C++ compiler above all, in whatever words the compiler driver has for it
        new.unlink(missing_ok=True)
        reason = first_line(error)[:200]
        raise WorkError(f"the model cannot be compiled here ({reason}): use --engine eager") from error
    os.replace(new, path)


def exported_engine(to: str) -> Callable[[ViT, Preprocess], Exported]:
    """The model through another runtime, converted on first use."""

    def make(model: ViT, preprocess: Preprocess) -> Exported:
        info = export_info(model, preprocess)
        suffix = ".xml" if to == "openvino" else ".onnx"
        folder = cache_folder() / "engines" / key(model, to, info.to_strings())
        path = folder / f"model{suffix}"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            new = folder / f"new.{os.getpid()}{suffix}"
            WRITERS[to](copy.deepcopy(model).cpu().float(), info, new)  # wherever the model itself is at work
            if to == "openvino":
                os.replace(new.with_suffix(".bin"), path.with_suffix(".bin"))
            os.replace(new, path)
        _used(folder)
        return Exported(path)

    return make


def _used(made: Path) -> None:
    """What has not been used for longest makes room."""
    with contextlib.suppress(OSError):  # a cache that may only be read
        made.touch()
        prune(made.parent, keep=made, limit=LIMIT)


def export_info(model: ViT, preprocess: Preprocess, takes: str = "images", any_size: bool = False) -> ExportInfo:
    patch, size = model.config.patch_size, preprocess.size
    grid = [max(64, 2 * s // p) for s, p in zip(size, patch, strict=True)]
    return ExportInfo(
        class_names=tuple(model.info.class_names),
        preprocess=preprocess,
        patch_size=patch,
        takes=takes,
        any_size=any_size,
        largest=(grid[0] * patch[0], grid[1] * patch[1]) if any_size else size,
        precision="fp32",
        weights_sha256=hash_weights(model),
        vitkit_version=__version__,
    )


def key(model: ViT, *parts: object) -> str:
    text = json.dumps([hash_weights(model), model.config.to_dict(), parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


ENGINES: dict[str, Callable[[ViT, Preprocess], Engine]] = {
    "eager": Eager,
    "compiled": Compiled,
    "openvino": exported_engine("openvino"),
    "onnx": exported_engine("onnx"),
}


def make_engine(name: str, model: ViT, preprocess: Preprocess) -> Engine:
    if name not in ENGINES:
        raise UnknownNameError("engine", name, ["auto", *ENGINES])
    return ENGINES[name](model, preprocess)
