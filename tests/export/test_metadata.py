from pathlib import Path

import pytest

from tests.export.small_export import open_export, pixels
from tests.inference.conftest import NAMES, PREPROCESS, small_model
from vitkit.errors import (
    InputError,
    WeightsError,
)
from vitkit.export.metadata import ExportMetadata
from vitkit.inference import Predictor

pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")


@pytest.mark.parametrize("fixture", ["onnx_folder", "openvino_folder"])
def test_class_names_and_preprocessing_are_in_the_file(fixture: str, request: pytest.FixtureRequest) -> None:
    metadata = open_export(request.getfixturevalue(fixture)).metadata
    assert metadata.class_names == NAMES
    assert metadata.preprocess == PREPROCESS


def test_a_fixed_size_export_refuses_other_sizes(openvino_folder: Path) -> None:
    with pytest.raises(InputError, match=r"takes \(16, 16\)"):
        open_export(openvino_folder)(pixels(1, 20, 16))


def test_sizes_that_the_patch_does_not_divide_are_refused(onnx_folder: Path) -> None:
    with pytest.raises(InputError, match=r"multiples of \(4, 4\) up to \(256, 256\)"):
        open_export(onnx_folder)(pixels(1, 18, 16))
    with pytest.raises(InputError, match="multiples of"):
        open_export(onnx_folder)(pixels(1, 260, 16))


def test_a_graph_from_elsewhere_is_refused_for_its_missing_metadata(tmp_path: Path) -> None:
    import onnx

    node = onnx.helper.make_node("Identity", ["x"], ["logits"])
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("x", "logits")]
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(made, tmp_path / "model.onnx")
    with pytest.raises(WeightsError, match="has no readable class names"):
        Predictor(tmp_path)


def test_entries_keep_their_names_so_that_older_exports_can_be_read() -> None:
    metadata = ExportMetadata.from_model(small_model(), PREPROCESS, input_kind="pixels", dynamic_size=True)
    strings = metadata.to_strings()
    assert set(strings) == {
        f"vitkit.{name}"
        for name in ("class_names", "preprocess", "patch_size", "takes", "any_size", "largest", "precision",
                     "weights_sha256", "vitkit_version")
    }  # fmt: skip
    assert strings["vitkit.takes"] == '"pixels"'
    assert strings["vitkit.largest"] == "[256, 256]"
    assert ExportMetadata.from_strings(strings, Path("model.onnx")) == metadata
