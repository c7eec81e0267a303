"""Exports: a complete folder that gives the same numbers, or no files at all."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.export.small_export import labelled_by_the_model, logits, pixels
from tests.inference.conftest import NAMES, small_model
from vitkit.cli.main import main
from vitkit.errors import (
    ConfigError,
    DataError,
    InputError,
    MissingExtraError,
    UnknownNameError,
    WorkError,
)
from vitkit.export.export import export_model
from vitkit.export.parity import Tolerance
from vitkit.inference import Predictor
from vitkit.weights.model_dir import save_model

pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")


def test_the_label_column_is_that_of_the_models_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("path", "breed")]
    for i, image in enumerate(pixels(20)):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
        rows.append((f"{i}.png", NAMES[i % len(NAMES)]))
    with (tmp_path / "pets.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    model = small_model()
    recipe = {"data": str(tmp_path / "pets.csv"), "label": "breed", "seed": 0, "val_fraction": 0.3}
    save_model(model, tmp_path / "model", model.info.replace(recipe=recipe))
    assert main(["convert", str(tmp_path / "model"), str(tmp_path / "out"), "--to", "onnx", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"].values()
    assert file["top1_before"] is not None


def test_an_export_that_exceeds_the_tolerance_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"logits differ by up to .* more than 0; nothing was written"):
        export_model(
            small_model(), tmp_path / "out", tolerance=Tolerance(logits=0.0, agreement=1.0, accuracy_loss=None)
        )
    assert list(tmp_path.iterdir()) == []


def test_several_sizes_are_several_files_and_int8_is_measured_on_labels(tmp_path: Path) -> None:
    data = labelled_by_the_model(tmp_path / "data.npz")
    lenient = Tolerance(logits=None, agreement=0.5, accuracy_loss=0.5)
    done = export_model(
        small_model(), tmp_path / "out", int8=True, calibrate=data, image_sizes=(16, 24), tolerance=lenient
    )
    assert sorted(done.files) == ["model_16x16.onnx", "model_24x24.onnx"]
    small = done.files["model_16x16.onnx"]
    assert small.top1_before == 1.0, "the labels are the model's own predictions at this size"
    assert small.top1_after is not None
    assert small.top1_after > 0.7
    assert 1e-4 < small.max_logit_difference < 0.3 * small.largest_logit, "int8 moves logits, but not far"
    with pytest.raises(InputError, match="several sizes"):
        Predictor(tmp_path / "out")
    predictor = Predictor(tmp_path / "out", image_size=24)
    assert predictor.preprocess.size == (24, 24)
    assert predictor.engine.name == "onnx int8"
    np.testing.assert_allclose(predictor.engine(pixels(2, 24, 24)), logits(pixels(2, 24, 24)), atol=1.0)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (dict(to="tensorrt"), UnknownNameError, "unknown runtime 'tensorrt'; known: onnx, openvino"),
        (dict(int8=True), DataError, "--calibrate DATA"),
        (dict(image_sizes=(16, 24), dynamic_size=True), ConfigError, "choose one"),
        (dict(image_sizes=(17,)), InputError, "image height 17 is not a multiple of the patch height"),
    ],
)
def test_wrong_arguments_are_errors_before_any_file_is_written(
    tmp_path: Path, changes: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        export_model(small_model(), tmp_path / "out", **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="not an empty folder"):
        export_model(small_model(), tmp_path)
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("package", ["onnxruntime", "openvino"])
def test_a_missing_runtime_is_named_with_its_install_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    target = "openvino" if package == "openvino" else "onnx"
    with pytest.raises(MissingExtraError, match=r"pip install 'vitkit\[export\]'") as caught:
        export_model(small_model(), "never", target)
    assert package in str(caught.value)
    assert not Path("never").exists()


def test_an_export_for_another_engine_is_refused(onnx_folder: Path) -> None:
    with pytest.raises(ConfigError, match="an export for onnx"):
        Predictor(onnx_folder, "openvino")
