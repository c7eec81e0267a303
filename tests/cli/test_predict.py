"""`vitkit predict` as a user runs it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.inference.conftest import NAMES, small_model
from vitkit.cli.main import main
from vitkit.inference import Predictor
from vitkit.weights.model_dir import save_model


def predict(*words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "vitkit", "predict", *words], capture_output=True, input=stdin)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_model(small_model(), tmp_path_factory.mktemp("model") / "small"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    draws = np.random.default_rng(0)
    for name in ("a", "b", "d"):
        Image.fromarray(draws.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(folder / f"{name}.png")
    (folder / "c.png").write_text("no image", encoding="utf-8")
    return folder


def test_lines_for_people_keep_going_past_a_bad_file(model: str, images: Path) -> None:
    done = predict(model, str(images), "--top", "2", "--batch", "1")
    assert done.returncode == 1
    header, *lines = done.stdout.decode().splitlines()
    assert header.split() == ["image", "prediction", "score", "alternatives"]
    assert [line.split()[0] for line in lines] == [str(images / f"{name}.png") for name in "abd"]
    best, second = Predictor(model)(images / "a.png", top=2)
    assert f"{best.label} " in lines[0]
    assert lines[0].endswith(f"{second.label} {second.score:.1%}")
    assert done.stderr.decode().splitlines() == [
        "vitkit: engine eager: 4 images, ready at once",
        f"vitkit: skipped: {images / 'c.png'}: is not an image of a known format (JPEG, PNG, WEBP, BMP, GIF, TIFF)",
        "vitkit: 1 of 4 images could not be read",
    ]


def test_json_is_one_list_also_of_nothing(model: str, images: Path) -> None:
    done = predict(model, str(images), "--json", "--top", "3")
    found = json.loads(done.stdout)
    assert [entry["path"] for entry in found] == [str(images / f"{name}.png") for name in "abd"]
    assert all(len(entry["predictions"]) == 3 for entry in found)
    assert set(found[0]["predictions"][0]) == {"label", "score", "index"}
    nothing = predict(model, str(images / "c.png"), "--json")
    assert nothing.returncode == 1
    assert json.loads(nothing.stdout) == []


def test_csv_has_a_line_per_image(model: str, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    done = predict(model, str(images / "[abd].png"), "--csv", str(out), "--top", "2")
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader(out.open(encoding="utf-8", newline="")))
    assert rows[0] == ["path", "label_1", "score_1", "label_2", "score_2", "index_1", "index_2"]
    assert [row[0] for row in rows[1:]] == [str(images / f"{name}.png") for name in "abd"]
    assert rows[1][1] in NAMES
    assert 0 < float(rows[1][4]) < float(rows[1][2]) < 1
    assert [NAMES[int(index)] for index in rows[1][5:]] == [rows[1][1], rows[1][3]]


def test_predictions_tell_classes_of_the_same_name_apart(images: Path, tmp_path: Path) -> None:
    cranes = small_model()
    cranes.info = cranes.info.replace(class_names=("crane",) * len(NAMES))
    done = predict(str(save_model(cranes, tmp_path / "cranes")), str(images / "a.png"), "--json")
    found = json.loads(done.stdout)[0]["predictions"]
    expected = Predictor(small_model())(images / "a.png")
    assert [NAMES[p["index"]] for p in found] == [p.label for p in expected]


def test_a_dash_reads_one_image_from_standard_input(model: str, images: Path) -> None:
    done = predict(model, "-", "--json", stdin=(images / "a.png").read_bytes())
    (entry,) = json.loads(done.stdout)
    assert entry["path"] == "-"
    assert entry["predictions"][0]["label"] == Predictor(model)(images / "a.png")[0].label
    bad = predict(model, "-", stdin=b"nothing")
    assert bad.returncode == 1
    assert b"vitkit: skipped: -: is not an image" in bad.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--json", "--csv", "x.csv"], "--json and --csv exclude each other"),
        (["--top", "0"], "must be at least 1"),
        (["--engine", "tensorflow"], "unknown engine 'tensorflow'"),
        (["--csv", "/no/such/folder/x.csv"], "folder /no/such/folder does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(model: str, images: Path, words: list[str], message: str) -> None:
    done = predict(model, str(images / "a.png"), *words)
    assert done.returncode == 2
    said = [line for line in done.stderr.decode().splitlines() if "engine eager" not in line]
    assert len(said) == 1
    assert message in said[0]


def test_standard_input_that_is_closed_holds_no_image(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as Python has it after `<&-`
    assert main(["predict", model, "-"]) == 1


@pytest.mark.parametrize("option", ["--class-names", "--preprocess"])
def test_what_a_model_brings_is_not_replaced(
    option: str, model: str, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "given.json").write_text('["x"]' if option == "--class-names" else '{"size": 16}', encoding="utf-8")
    assert main(["predict", model, str(images / "a.png"), option, str(tmp_path / "given.json")]) == 2
    assert f"has its own {option[2:].replace('-', ' ')}: remove {option}" in capsys.readouterr().err


def test_class_names_cannot_command_a_terminal_or_a_spreadsheet(tmp_path: Path, images: Path) -> None:
    names = ("=cmd|' /C calc'!A0", "\x1b[2Jdog", *(f"@{i}" for i in range(len(NAMES) - 2)))
    model = small_model()
    folder = str(save_model(model, tmp_path / "evil", model.info.replace(class_names=names)))
    shown = predict(folder, str(images / "a.png"), "--top", str(len(names))).stdout
    assert b"\x1b" not in shown
    assert b"\\x1b[2Jdog" in shown
    predict(folder, str(images / "a.png"), "--top", str(len(names)), "--csv", str(tmp_path / "out.csv"))
    _, row = csv.reader((tmp_path / "out.csv").read_text("utf-8").splitlines())
    assert not any(cell.startswith(("=", "@")) for cell in row)
    assert f"'{names[0]}" in row
