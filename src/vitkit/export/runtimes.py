"""Runs a model on resized pixels, in torch or as an exported file in ONNX Runtime or OpenVINO.

Every model here maps pixels (B, H, W, C) uint8 to logits (B, K) float32, and may be called from several threads at
once: ONNX Runtime sessions are thread-safe, and OpenVINO gets one request per thread.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError, first_line
from vitkit.export.metadata import PREFIX, SUFFIXES, ExportMetadata
from vitkit.model import ViT
from vitkit.runtime.device import omp_threads
from vitkit.runtime.packages import require_package
from vitkit.runtime.threaded_inference import ThreadedInference


class TorchModel:
    """Runs a ViT in torch, as it is."""

    def __init__(self, model: ViT, preprocess: Preprocess) -> None:
        self.model, self.preprocess, self.name = model, preprocess, "eager"
        self.run: Callable[[Tensor], Tensor] = ThreadedInference(model)

    @torch.inference_mode()
    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        weight = self.model.patch_embed.proj.weight
        batch = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous().to(weight.device)
        return self.run(self.preprocess.normalize(batch).to(weight.dtype)).float().cpu().numpy()


class ExportedModel:
    """Runs an exported file in its runtime."""

    def __init__(self, path: Path) -> None:
        kind = SUFFIXES[path.suffix]
        self.runtime: Runtime = _RUNTIMES[kind](path)
        self.metadata = self.runtime.metadata
        self.name = f"{kind} {self.metadata.precision}"

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        return self.runtime(self.metadata.prepare_input(pixels))


class Runtime(Protocol):
    metadata: ExportMetadata

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """Map a batch in the input format of the graph to logits (B, K) float32."""
        ...


class OnnxRuntime:
    def __init__(self, path: Path) -> None:
        ort = require_package("onnxruntime", "running an ONNX file")
        options = ort.SessionOptions()
        options.intra_op_num_threads = omp_threads()
        options.log_severity_level = 3
        available = ort.get_available_providers()
        providers = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in available]
        try:
            self.session = ort.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # ONNX Runtime has many error classes without a common base
            raise WeightsError(f"{path} cannot be loaded by ONNX Runtime: {first_line(error)}") from error
        self.metadata = ExportMetadata.from_strings(self.session.get_modelmeta().custom_metadata_map, path)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return self.session.run(["logits"], {self.metadata.input_kind: batch})[0]


class OpenVinoRuntime:
    def __init__(self, path: Path) -> None:
        core = require_package("openvino", "running an OpenVINO file").Core()
        # By default OpenVINO may compute in bf16, which changes the results.
        options: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if omp_threads():
            options["INFERENCE_NUM_THREADS"] = omp_threads()
        try:
            model = core.read_model(path)
            self.compiled = core.compile_model(model, "CPU", options)
        except Exception as error:  # as in OnnxRuntime
            raise WeightsError(f"{path} cannot be loaded by OpenVINO: {first_line(error)}") from error
        entries = model.get_rt_info([PREFIX]).value if model.has_rt_info([PREFIX]) else {}
        strings = {f"{PREFIX}.{name}": str(entry) for name, entry in entries.items()}
        self.metadata = ExportMetadata.from_strings(strings, path)
        self.local = threading.local()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        if not hasattr(self.local, "request"):
            self.local.request = self.compiled.create_infer_request()
        self.local.request.infer({self.metadata.input_kind: batch})
        return np.array(self.local.request.get_tensor("logits").data)  # a copy: the request reuses its memory


_RUNTIMES: dict[str, Callable[[Path], Runtime]] = {"onnx": OnnxRuntime, "openvino": OpenVinoRuntime}


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities, computed in float64 so that all runtimes round alike."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    return powers / powers.sum(axis=-1, keepdims=True)
