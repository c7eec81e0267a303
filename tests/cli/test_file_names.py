"""File names that are not UTF-8: every command writes its results, and JSON gives the name back."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

STRICT = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}  # as a terminal with a UTF-8 locale


def vitkit(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "vitkit", *words], capture_output=True, env=STRICT)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs in Latin-1 folders, and a run that was trained on them."""
    place, draw = tmp_path_factory.mktemp("latin"), np.random.default_rng(0)
    for k, name in enumerate((b"dark", b"l\xefght")):
        folder = os.fsencode(place / "photos") + b"/" + name
        try:
            os.makedirs(folder)
        except OSError:
            pytest.skip("the file system allows only UTF-8")
        for i in range(10):
            content = io.BytesIO()
            Image.fromarray(draw.integers(100 * k, 100 * k + 100, (8, 8), dtype=np.uint8)).save(content, "PNG")
            with open(folder + b"/caf\xe9%d.png" % i, "wb") as file:
                file.write(content.getvalue())
    quick = [
        "--model",
        "vit_digits_patch2_8",
        "--epochs",
        "1",
        "--set",
        "preprocess.size=8",
        "--set",
        "machine.threads=1",
    ]
    result = json.loads(vitkit("train", str(place / "photos"), "--out", str(place / "run"), *quick, "--json"))
    assert result["val"]["class_names"] == ["dark", r"l\udcefght"]
    return place


def test_a_run_ends_with_its_result_and_report(place: Path) -> None:
    assert json.loads((place / "run" / "result.json").read_text(encoding="utf-8"))["val"]["n"] == 2
    assert (place / "run" / "report.html").read_text(encoding="utf-8")


def test_evaluation_writes_all_of_its_files(place: Path) -> None:
    run, data, out = str(place / "run"), str(place / "photos"), place / "eval"
    vitkit("eval", run, data, "--split", "train", "--out", str(out))
    rows = list(csv.DictReader((out / "predictions.csv").open(encoding="utf-8", newline="")))
    assert len(rows) == 18
    assert all(r"caf\udce9" in row["image"] for row in rows)
    assert json.loads((out / "evaluation.json").read_text(encoding="utf-8"))["n"] == 18


def test_predictions_name_the_files(place: Path) -> None:
    run, data = str(place / "run"), str(place / "photos")
    found = json.loads(vitkit("predict", run, data, "--json"))
    assert len(found) == 20
    assert all(Path(entry["path"]).is_file() for entry in found)
    assert "prediction" in vitkit("predict", run, data)
    vitkit("predict", run, data, "--csv", str(place / "out.csv"))
    assert len((place / "out.csv").read_text(encoding="utf-8").splitlines()) == 21


def test_other_commands_print_and_draw_the_names(place: Path) -> None:
    run, data = str(place / "run"), str(place / "photos")
    assert json.loads(vitkit("inspect", data, "--json"))["images"] == 20
    assert vitkit("inspect", data)
    vitkit("explain", run, data, "--out", str(place / "explained"), "--heads")
    assert (place / "explained" / "sheet.png").is_file()
