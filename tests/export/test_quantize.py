import logging
import os
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.export.small_export import labelled_by_the_model, open_export
from tests.inference.conftest import NAMES, small_model
from vitkit.export.export import export_model
from vitkit.export.parity import Tolerance
from vitkit.runtime.packages import require_package

pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")


def test_int8_for_openvino_stays_close_to_float32(tmp_path: Path) -> None:
    pytest.importorskip("nncf", reason="pip install 'vitkit[export]'")
    data = labelled_by_the_model(tmp_path / "data.npz")
    lenient = Tolerance(logits=None, agreement=0.5, accuracy_loss=0.5)
    done = export_model(small_model(), tmp_path / "out", "openvino", int8=True, calibrate=data, tolerance=lenient)
    (measured,) = done.files.values()
    assert measured.top1_before == 1.0
    assert 1e-4 < measured.max_logit_difference < 0.3 * measured.largest_logit
    assert open_export(tmp_path / "out").metadata.precision == "int8"
    assert open_export(tmp_path / "out").metadata.class_names == NAMES


def process_state() -> dict[str, object]:
    return {
        "logging": logging.root.manager.disable,
        "root level": logging.root.level,
        "nncf level": logging.getLogger("nncf").level,
        "stdout": sys.stdout,
        "stderr": sys.stderr,
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "threads": torch.get_num_threads(),
    }


def test_exports_in_two_threads_leave_the_process_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nncf", reason="pip install 'vitkit[export]'")
    monkeypatch.delenv("NNCF_CI", raising=False)
    data = labelled_by_the_model(tmp_path / "data.npz")
    any_difference = Tolerance(logits=None, agreement=0.0, accuracy_loss=None)
    require_package("nncf", "int8 of OpenVINO")  # its import sets up its logger
    before, start = process_state(), threading.Barrier(2)

    def run(to: str) -> None:
        start.wait()
        export_model(small_model(), tmp_path / to, to, int8=True, calibrate=data, tolerance=any_difference)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, ("onnx", "openvino")))
    assert process_state() == before
    assert capsys.readouterr().out == "", "NNCF would draw progress bars"
