"""The command `vitkit inspect`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.small_data import ROWS, write_folder
from vitkit.cli.main import main


def test_the_table_and_the_json_name_corrupt_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "photos", ROWS)
    (folder / "train" / "ant" / "bad.png").write_bytes(b"no image")
    assert main(["inspect", str(folder)]) == 0
    table = capsys.readouterr().out
    for part in ("40 images, 3 classes", "1 corrupt images (2.50%)", "bad.png"):
        assert part in table
    assert main(["inspect", str(folder), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["splits"] == {"train": 31, "val": 9}
    assert [(c["split"], Path(c["name"]).name) for c in values["corrupt"]] == [("train", "bad.png")]
    assert values["corrupt"][0]["reason"].startswith("is not an image")


def test_the_range_of_images_of_more_than_8_bits_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i, name in enumerate(("ant", "bee")):
        (tmp_path / name).mkdir()
        Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64)[:: 1 - 2 * i]).save(
            tmp_path / name / "scan.png"
        )
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["value_range"]
    assert (found["images"], found["used"], found["nominal"], found["levels"]) == (2, [0, 4095], [0, 65535], 17)
    assert main(["inspect", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 images of more than 8 bits use 0 to 4095 of 0 to 65535: 17 of 256 grey levels" in shown
    assert "--set 'preprocess.range=(0, 4095)'" in shown
    Image.new("L", (8, 8)).save(tmp_path / "ant" / "scan.png")
    (tmp_path / "bee" / "scan.png").unlink()
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["value_range"] is None


def test_digits_are_inspected_without_output_on_stderr() -> None:
    pytest.importorskip("sklearn", reason="pip install 'vitkit[demo]'")
    code = "from vitkit.cli.inspect import Inspect; raise SystemExit(Inspect('digits', json=True).run())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    values = json.loads(done.stdout)
    assert done.stderr == ""
    assert values["splits"] == {"train": 1079, "val": 359, "test": 359}
    assert values["advice"]["model"] == "vit_digits_patch2_8"
    assert values["advice"]["channels"] == 1
    assert values["copies"] == []  # 8×8 pixels are too few to tell near duplicates from similar digits


def test_parsing_the_command_imports_nothing_heavy() -> None:
    code = "import sys, vitkit.cli.inspect; raise SystemExit(any(m in sys.modules for m in ('torch', 'numpy', 'PIL')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
