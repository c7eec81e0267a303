"""An exported file in its runtime: a batch as the graph takes it in, logits out. Torch is not needed for it.

Both are safe to call from several threads at once: an ONNX Runtime session is, and OpenVINO gets a request per thread.
"""

import threading
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vitkit.errors import WeightsError, first_line
from vitkit.export.metadata import PREFIX, SUFFIXES, ExportInfo
from vitkit.export.packages import need, threads


class Runtime(Protocol):
    info: ExportInfo

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """(B, K) float32 logits."""
        ...


class OnnxRuntime:
    def __init__(self, path: Path) -> None:
        ort = need("onnxruntime", "running an ONNX file")
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads()
        options.log_severity_level = 3
        available = ort.get_available_providers()
        providers = [p for p in ("CUDAExecutionProvider", "CPUExecutionProvider") if p in available]
        try:
            self.session = ort.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # the runtime has a class of its own for every way in which a file can be bad
            raise WeightsError(f"{path} cannot be loaded by ONNX Runtime: {first_line(error)}") from error
        self.info = ExportInfo.from_strings(self.session.get_modelmeta().custom_metadata_map, path)

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return self.session.run(["logits"], {self.info.takes: batch})[0]


class OpenVino:
    def __init__(self, path: Path) -> None:
        ov = need("openvino", "running an OpenVINO file")
        core = ov.Core()
        # Its own choice may be bf16, which is another model; threads as asked for.
        wishes: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if threads():
            wishes["INFERENCE_NUM_THREADS"] = threads()
        try:
            model = core.read_model(path)
            self.compiled = core.compile_model(model, "CPU", wishes)
        except Exception as error:
            raise WeightsError(f"{path} cannot be loaded by OpenVINO: {first_line(error)}") from error
        self.info = ExportInfo.from_strings(_strings(model), path)
        self.requests = threading.local()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        if not hasattr(self.requests, "own"):
            self.requests.own = self.compiled.create_infer_request()
        request = self.requests.own
        request.infer({self.info.takes: batch})
        return np.array(request.get_tensor("logits").data)  # a copy: the request writes into the same memory again


RUNTIMES: dict[str, Any] = {"onnx": OnnxRuntime, "openvino": OpenVino}


def load_exported(path: Path) -> Runtime:
    return RUNTIMES[SUFFIXES[path.suffix]](path)


def _strings(model: Any) -> dict[str, str]:
    if not model.has_rt_info([PREFIX]):
        return {}
    entries = model.get_rt_info([PREFIX]).value
    return {f"{PREFIX}.{key}": str(entry) for key, entry in entries.items()}
