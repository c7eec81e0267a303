import json

import pytest

from vitkit.cli.main import main


def test_models_counts_parameters_and_macs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "vit_base_patch16_224", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["parameters"], round(row["macs"] / 1e9, 2)) == (86_567_656, 17.58)


def test_models_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "nano"]) == 0
    printed = capsys.readouterr().out
    assert "vit_nano_patch4_32" in printed
    assert "0.12" in printed
