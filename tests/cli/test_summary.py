import json

import pytest

from vitkit.cli.main import main


def layers(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict]:
    assert main(["summary", "vit_nano_patch4_32", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)["layers"]


def test_summary_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    total, *rest = layers(capsys, "--depth", "1")
    assert total["parameters"] == 119_098
    assert total["shape"] == [1, 10]
    assert {"patch_embed", "norm", "head"} <= {layer["path"] for layer in rest}


def test_summary_at_a_larger_image_size_costs_more(capsys: pytest.CaptureFixture[str]) -> None:
    small = layers(capsys, "--depth", "0")[0]["macs"]
    large = layers(capsys, "--depth", "0", "--image-size", "64", "32")[0]["macs"]
    assert 2 * small < large < 3 * small


def test_summary_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", "vit_nano_patch4_32", "--depth", "1"]) == 0
    printed = capsys.readouterr().out
    assert "0.12 M parameters" in printed
    assert "patch_embed" in printed
