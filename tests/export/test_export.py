"""What an export promises: the same numbers in its runtime, everything it needs inside, or nothing at all."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.inference.conftest import NAMES, PREPROCESS, small_model
from vitkit.cli.main import main
from vitkit.errors import (
    ConfigError,
    DataError,
    InputError,
    MissingExtraError,
    UnknownNameError,
    WeightsError,
    WorkError,
)
from vitkit.export.export import export
from vitkit.export.metadata import find_exported
from vitkit.export.parity import Parity, Tolerance
from vitkit.inference import Predictor
from vitkit.inference.engines import Exported
from vitkit.weights.model_dir import save_model

pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")


def pixels(count: int = 3, height: int = 16, width: int = 16) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def logits(images: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        return small_model()(PREPROCESS.normalize(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous())).numpy()


def labelled_by_the_model(path: Path) -> Path:
    """A data set on which the model is always right: its labels are the model's own answers."""
    images = np.random.default_rng(2).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    labels = logits(np.stack([PREPROCESS.array(image) for image in images])).argmax(axis=1)
    np.savez(path, train_images=images[20:], train_labels=labels[20:], test_images=images[:20],
             test_labels=labels[:20], class_names=np.array(NAMES))  # fmt: skip
    return path


def graph_of(folder: Path) -> Exported:
    path = find_exported(folder)
    assert path is not None
    return Exported(path)


def test_the_column_of_the_class_is_that_of_the_models_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


@pytest.mark.parametrize("fixture", ["onnx_folder", "openvino_folder"])
def test_any_batch_gives_the_logits_of_the_model(fixture: str, request: pytest.FixtureRequest) -> None:
    run = graph_of(request.getfixturevalue(fixture))
    for count in (1, 2, 7):
        np.testing.assert_allclose(run(pixels(count)), logits(pixels(count)), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(16, 16), (8, 32), (40, 12), (64, 128)])
def test_any_size_gives_the_logits_of_the_model(onnx_folder: Path, height: int, width: int) -> None:
    images = pixels(2, height, width)
    np.testing.assert_allclose(graph_of(onnx_folder)(images), logits(images), rtol=0, atol=2e-5)


@pytest.mark.parametrize("fixture", ["onnx_folder", "openvino_folder"])
def test_names_and_preprocessing_are_inside_the_file(fixture: str, request: pytest.FixtureRequest) -> None:
    info = graph_of(request.getfixturevalue(fixture)).info
    assert info.class_names == NAMES
    assert info.preprocess == PREPROCESS


def test_pixels_in_probabilities_out(openvino_folder: Path) -> None:
    import openvino as ov

    model = ov.Core().compile_model(openvino_folder / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    scores = model({"pixels": pixels()})["probabilities"]
    np.testing.assert_allclose(scores, torch.from_numpy(logits(pixels())).softmax(-1), atol=1e-5)


@pytest.mark.parametrize("fixture", ["onnx_folder", "openvino_folder"])
def test_the_card_and_the_json_tell_what_was_measured(fixture: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(fixture)
    (measured,) = json.loads((folder / "export.json").read_text())["files"].values()
    assert measured["n"] == 32
    assert measured["images"] == "sample photographs"
    assert 0 < measured["max_logit_difference"] < 1e-3
    assert measured["agreement"] == 1.0
    assert measured["ms"] > 0
    card = (folder / "README.md").read_text()
    assert f"{measured['max_logit_difference']:.2g}" in card
    assert "sample photographs" in card


def test_another_size_than_the_baked_one_is_refused(openvino_folder: Path) -> None:
    with pytest.raises(InputError, match=r"takes \(16, 16\)"):
        graph_of(openvino_folder)(pixels(1, 20, 16))


def test_sizes_that_no_grid_has_are_refused(onnx_folder: Path) -> None:
    with pytest.raises(InputError, match=r"multiples of \(4, 4\) up to \(256, 256\)"):
        graph_of(onnx_folder)(pixels(1, 18, 16))
    with pytest.raises(InputError, match="multiples of"):
        graph_of(onnx_folder)(pixels(1, 260, 16))


def test_an_export_for_another_engine_is_refused(onnx_folder: Path) -> None:
    with pytest.raises(ConfigError, match="an export for onnx"):
        Predictor(onnx_folder, "openvino")


def test_over_the_tolerance_nothing_is_left_behind(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"logits differ by up to .* more than 0; nothing was kept"):
        export(small_model(), tmp_path / "out", tolerance=Tolerance(logits=0.0, agreement=1.0, accuracy_loss=None))
    assert list(tmp_path.iterdir()) == []


def test_several_sizes_are_several_files_and_int8_is_measured_on_labels(tmp_path: Path) -> None:
    data = labelled_by_the_model(tmp_path / "data.npz")
    lenient = Tolerance(logits=None, agreement=0.5, accuracy_loss=0.5)
    done = export(small_model(), tmp_path / "out", int8=True, calibrate=data, sizes=(16, 24), tolerance=lenient)
    assert sorted(done.files) == ["model_16x16.onnx", "model_24x24.onnx"]
    small = done.files["model_16x16.onnx"]
    assert small.top1_before == 1.0, "the labels are the model's own answers at this size"
    assert small.top1_after is not None
    assert small.top1_after > 0.7
    assert 1e-4 < small.max_logit_difference < 0.3 * small.largest_logit, "int8 moves logits, but not far"
    with pytest.raises(InputError, match="several sizes"):
        Predictor(tmp_path / "out")
    predictor = Predictor(tmp_path / "out", size=24)
    assert predictor.preprocess.size == (24, 24)
    assert predictor.engine.name == "onnx int8"
    np.testing.assert_allclose(predictor.engine(pixels(2, 24, 24)), logits(pixels(2, 24, 24)), atol=1.0)


def test_int8_for_openvino(tmp_path: Path) -> None:
    pytest.importorskip("nncf", reason="pip install 'vitkit[export]'")
    data = labelled_by_the_model(tmp_path / "data.npz")
    lenient = Tolerance(logits=None, agreement=0.5, accuracy_loss=0.5)
    done = export(small_model(), tmp_path / "out", "openvino", int8=True, calibrate=data, tolerance=lenient)
    (measured,) = done.files.values()
    assert measured.top1_before == 1.0
    assert 1e-4 < measured.max_logit_difference < 0.3 * measured.largest_logit
    assert graph_of(tmp_path / "out").info.precision == "int8"
    assert graph_of(tmp_path / "out").info.class_names == NAMES


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (dict(to="tensorrt"), UnknownNameError, "unknown runtime 'tensorrt'; known: onnx, openvino"),
        (dict(int8=True), DataError, "--calibrate DATA"),
        (dict(sizes=(16, 24), dynamic_size=True), ConfigError, "choose one"),
        (dict(sizes=(17,)), InputError, "image height 17 is not a multiple of the patch height"),
    ],
)
def test_what_cannot_be_exported_is_said_before_any_work(
    tmp_path: Path, changes: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        export(small_model(), tmp_path / "out", **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not an empty folder"):
        export(small_model(), tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("package", ["onnxruntime", "openvino"])
def test_a_missing_runtime_is_named_with_its_install_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    target = "openvino" if package == "openvino" else "onnx"
    with pytest.raises(MissingExtraError, match=r"pip install 'vitkit\[export\]'") as caught:
        export(small_model(), "never", target)
    assert package in str(caught.value)
    assert not Path("never").exists()


def test_a_damaged_file_is_one_line(onnx_folder: Path, tmp_path: Path) -> None:
    bad = tmp_path / "model.onnx"
    bad.write_bytes((onnx_folder / "model.onnx").read_bytes()[:1000])
    with pytest.raises(WeightsError, match="cannot be loaded by ONNX Runtime") as caught:
        Predictor(bad)
    assert "\n" not in str(caught.value)


def test_a_graph_of_others_says_that_it_brings_no_names(tmp_path: Path) -> None:
    import onnx

    node = onnx.helper.make_node("Identity", ["x"], ["logits"])
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "logits")]
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(made, tmp_path / "model.onnx")
    with pytest.raises(WeightsError, match="brings no class names"):
        Predictor(tmp_path)


def test_a_change_of_mind_counts_unless_float32_leaves_it_open() -> None:
    def parity(agreement: float, difference: float) -> Parity:
        return Parity("x", 10, difference, 1.0, 0.0, agreement, 0, None, None, 1, 1.0, 1.0)

    tight = Tolerance(logits=1e-3, agreement=1.0, accuracy_loss=None)
    parity(1.0, 1e-5).judge(tight, "it")
    with pytest.raises(WorkError, match=r"top-1 agrees on 90\.0%"):
        parity(0.9, 1e-5).judge(tight, "it")
    with pytest.raises(WorkError, match="logits differ"):
        parity(1.0, float("nan")).judge(tight, "it")


def test_an_export_answers_without_the_compiler_of_torch(onnx_folder: Path) -> None:
    """What a prediction has to import decides when it answers."""
    code = (
        "import sys, vitkit, numpy as np; "
        f"vitkit.Predictor({str(onnx_folder)!r})(np.zeros((9, 9, 3), np.uint8)); "
        "print([m for m in ('onnx', 'onnxscript', 'torch._inductor', 'matplotlib', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
