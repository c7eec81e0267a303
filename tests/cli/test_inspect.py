"""The command `vitkit inspect`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
