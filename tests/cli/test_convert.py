import json

from safetensors.torch import save_file

from tests.weights.conftest import tensors
from vitkit.cli.main import main


def test_convert_prints_its_report(tmp_path, capsys):
    bare = tmp_path / "vit.safetensors"
    save_file(tensors(), bare)
    assert main(["convert", str(bare), str(tmp_path / "hf"), "--to", "hf", "--num-classes", "4"]) == 0
    said = capsys.readouterr().out
    for words in ("read as", "hf-vit", "assumed: heads=2", "adapted: classes 3 → 4", "round trip"):
        assert words in said, words
    assert main(["convert", str(bare), str(tmp_path / "v"), "--to", "vitkit", "--json", "--set", "norm_eps=1e-5"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["read"]["config"]["norm_eps"] == 1e-5
    assert {d["what"]: d["difference"] for d in report["differences"]}["round trip"] == 0
    assert main(["convert", str(bare), str(tmp_path / "x"), "--to", "tim"]) == 2
    assert (
        "unknown target 'tim'; valid targets: vitkit, timm, hf, torchvision, dinov2, npz, onnx, openvino"
        in capsys.readouterr().err
    )
    assert main(["convert", str(bare), str(tmp_path / "x"), "--to", "timm", "--int8"]) == 2
    assert "--int8 is for --to onnx and openvino" in capsys.readouterr().err
