import json

import pytest

pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")


@pytest.mark.parametrize("fixture", ["onnx_folder", "openvino_folder"])
def test_the_card_and_the_json_state_the_measured_differences(fixture: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(fixture)
    (measured,) = json.loads((folder / "export.json").read_text(encoding="utf-8"))["files"].values()
    assert measured["n"] == 32
    assert measured["images"] == "sample photographs"
    assert 0 < measured["max_logit_difference"] < 1e-3
    assert measured["agreement"] == 1.0
    assert measured["ms"] > 0
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"{measured['max_logit_difference']:.2g}" in card
    assert "sample photographs" in card
