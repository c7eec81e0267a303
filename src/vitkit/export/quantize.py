"""float32 → int8, by the ranges that activations take on real images. Each runtime has its own quantizer.

Weights get 7 of the 8 bits: without VNNI instructions, 8-bit products are added in 16 bits and would overflow there.
Products of two activations (q·kᵀ and A·v) stay in float in ONNX; NNCF has its own pattern for transformers.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from vitkit.export.graph import quiet, save_openvino
from vitkit.export.metadata import ExportInfo
from vitkit.export.packages import need

_BATCH = 10


def quantize_onnx(path: Path, info: ExportInfo, pixels: np.ndarray) -> None:
    """In place. `info` is what the new file says of itself."""
    onnx = need("onnx", "int8 of ONNX")
    q = need("onnxruntime.quantization", "int8 of ONNX")
    prepare = need("onnxruntime.quantization.shape_inference", "int8 of ONNX")

    class Reader:
        def __init__(self) -> None:
            self.batches: Iterator[dict[str, np.ndarray]] = iter(
                [{info.takes: info.feed(pixels[i : i + _BATCH])} for i in range(0, len(pixels), _BATCH)]
            )

        def get_next(self) -> Any:
            return next(self.batches, None)

    with TemporaryDirectory() as folder, quiet():
        prepared = Path(folder) / "prepared.onnx"
        prepare.quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
        q.quantize_static(
            str(prepared), str(path), Reader(), quant_format=q.QuantFormat.QDQ, per_channel=True, reduce_range=True,
            op_types_to_quantize=["MatMul", "Gemm", "Conv"], activation_type=q.QuantType.QUInt8,
            weight_type=q.QuantType.QInt8, extra_options={"MatMulConstBOnly": True},
        )  # fmt: skip
    graph = onnx.load(str(path))
    onnx.helper.set_model_props(graph, info.to_strings())
    onnx.save(graph, str(path))


def quantize_openvino(path: Path, info: ExportInfo, pixels: np.ndarray) -> None:
    """In place: .xml and .bin."""
    ov, nncf = need("openvino", "int8 of OpenVINO"), need("nncf", "int8 of OpenVINO")
    advanced = need("nncf.quantization.advanced_parameters", "int8 of OpenVINO")
    images = [info.feed(pixels[i : i + 1]) for i in range(len(pixels))]  # one by one, as NNCF asks for transformers
    with quiet():
        quantized = nncf.quantize(
            ov.Core().read_model(path), nncf.Dataset(images), subset_size=len(images),
            model_type=nncf.ModelType.TRANSFORMER,
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                overflow_fix=advanced.OverflowFix.ENABLE,
                smooth_quant_alphas=advanced.AdvancedSmoothQuantParameters(matmul=-1),  # off: narrow models suffer
            ),
        )  # fmt: skip
        save_openvino(quantized, info, path.with_suffix(".new.xml"))
    for suffix in (".xml", ".bin"):
        path.with_suffix(f".new{suffix}").replace(path.with_suffix(suffix))
