"""Quantizes exported graphs from float32 to int8, with activation ranges measured on real images.

Weights use 7 of the 8 bits: without VNNI instructions, 8-bit products are summed in 16 bits and would overflow.
Products of two activations (q·kᵀ and A·v) stay in float in ONNX; NNCF has its own pattern for transformers.
"""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from vitkit.export.graph import ignore_warnings, save_openvino
from vitkit.export.metadata import ExportMetadata
from vitkit.runtime.packages import require_package

_BATCH_SIZE = 10


def quantize_onnx(path: Path, metadata: ExportMetadata, pixels: np.ndarray) -> None:
    """Replace the file by its int8 version with this metadata, calibrated on `pixels`."""
    onnx = require_package("onnx", "int8 of ONNX")
    q = require_package("onnxruntime.quantization", "int8 of ONNX")
    shape_inference = require_package("onnxruntime.quantization.shape_inference", "int8 of ONNX")

    class CalibrationReader:
        def __init__(self) -> None:
            parts = (pixels[i : i + _BATCH_SIZE] for i in range(0, len(pixels), _BATCH_SIZE))
            self.batches = ({metadata.input_kind: metadata.prepare_input(part)} for part in parts)

        def get_next(self) -> Any:
            return next(self.batches, None)

    with TemporaryDirectory() as folder, ignore_warnings():
        prepared = Path(folder) / "prepared.onnx"
        shape_inference.quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
        q.quantize_static(
            str(prepared), str(path), CalibrationReader(), quant_format=q.QuantFormat.QDQ, per_channel=True,
            reduce_range=True, op_types_to_quantize=["MatMul", "Gemm", "Conv"], activation_type=q.QuantType.QUInt8,
            weight_type=q.QuantType.QInt8, extra_options={"MatMulConstBOnly": True},
        )  # fmt: skip
    graph = onnx.load(str(path))
    onnx.helper.set_model_props(graph, metadata.to_strings())
    onnx.save(graph, str(path))


def quantize_openvino(path: Path, metadata: ExportMetadata, pixels: np.ndarray) -> None:
    """Replace .xml and .bin by their int8 version with this metadata, calibrated on `pixels`."""
    ov, nncf = require_package("openvino", "int8 of OpenVINO"), require_package("nncf", "int8 of OpenVINO")
    advanced = require_package("nncf.quantization.advanced_parameters", "int8 of OpenVINO")
    images = [metadata.prepare_input(pixels[i : i + 1]) for i in range(len(pixels))]  # NNCF wants batches of one
    with _silent_nncf():
        quantized = nncf.quantize(
            ov.Core().read_model(path), nncf.Dataset(images), subset_size=len(images),
            model_type=nncf.ModelType.TRANSFORMER,
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                overflow_fix=advanced.OverflowFix.ENABLE,
                smooth_quant_alphas=advanced.AdvancedSmoothQuantParameters(matmul=-1),  # off: narrow models suffer
            ),
        )  # fmt: skip
    save_openvino(quantized, metadata, path.with_suffix(".new.xml"))
    for suffix in (".xml", ".bin"):
        path.with_suffix(f".new{suffix}").replace(path.with_suffix(suffix))


@contextmanager
def _silent_nncf() -> Iterator[None]:
    """Suppress NNCF's log and its progress bars on stdout within the context. NNCF has no switch for the bars."""
    logger = logging.getLogger("nncf")
    with ignore_warnings(), redirect_stdout(io.StringIO()):  # ignore_warnings admits one thread at a time
        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
