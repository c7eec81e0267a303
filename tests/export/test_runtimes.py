import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.export.small_export import logits, open_export, pixels
from vitkit.errors import (
    WeightsError,
)
from vitkit.inference import Predictor

pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")


@pytest.mark.parametrize("fixture", ["onnx_folder", "openvino_folder"])
def test_every_batch_size_gives_the_logits_of_the_model(fixture: str, request: pytest.FixtureRequest) -> None:
    run = open_export(request.getfixturevalue(fixture))
    for count in (1, 2, 7):
        np.testing.assert_allclose(run(pixels(count)), logits(pixels(count)), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (8, 32), (40, 12), (64, 128)])
def test_every_image_size_gives_the_logits_of_the_model(onnx_folder: Path, height: int, width: int) -> None:
    images = pixels(2, height, width)
    np.testing.assert_allclose(open_export(onnx_folder)(images), logits(images), rtol=0, atol=2e-5)


def test_an_export_with_preprocessing_maps_pixels_to_probabilities(openvino_folder: Path) -> None:
    import openvino as ov

    model = ov.Core().compile_model(openvino_folder / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    scores = model({"pixels": pixels()})["probabilities"]
    np.testing.assert_allclose(scores, torch.from_numpy(logits(pixels())).softmax(-1), atol=1e-5)


def test_a_truncated_file_is_a_one_line_error(onnx_folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "model.onnx"
    bad.write_bytes((onnx_folder / "model.onnx").read_bytes()[:1000])
    with pytest.raises(WeightsError, match="cannot be loaded by ONNX Runtime") as caught:
        Predictor(bad)
    assert "\n" not in str(caught.value)


def test_running_an_export_imports_neither_converters_nor_torchs_compiler(onnx_folder: Path) -> None:
    """Imports decide the time to the first prediction."""
    code = (
        "import sys, vitkit, numpy as np; "
        f"vitkit.Predictor({str(onnx_folder)!r})(np.zeros((9, 9, 3), np.uint8)); "
        "print([m for m in ('onnx', 'onnxscript', 'torch._inductor', 'matplotlib', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
