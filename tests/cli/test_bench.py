import json
import re
from pathlib import Path

import pytest

from vitkit.cli.main import main


def test_the_command_prints_rows_and_plots_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "vit_nano_patch4_32", "--train", "--against", "tutorial", "--rounds", "1", "--no-memory"]
    assert main([*words, "--batch", "1", "4", "--plot", str(tmp_path / "grows.svg"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(r["batch"], r["name"]) for r in found["rows"]} >= {
        (b, f"{n} fp32") for b in (1, 4) for n in ("vitkit", "tutorial")
    }
    assert {"images_per_s", "ms", "ratio", "peak_share"} <= found["rows"][0].keys()
    assert found["machine"]["cores"] >= 1
    drawing = (tmp_path / "grows.svg").read_text(encoding="utf-8")
    written = re.findall("<!-- (.+) -->", drawing)  # comments next to the outlines of each text
    assert {"batch size", "images per second", "vitkit fp32", "tutorial fp32"} <= set(written)


def test_kinds_of_benchmarks_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "vit_digits_patch2_8", "--load", "digits", "--train"]) == 2
    assert "give one of them" in capsys.readouterr().err
