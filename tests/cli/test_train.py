import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vitkit
from tests.serve.client import running
from vitkit.cli.main import main
from vitkit.cli.train import Train
from vitkit.errors import UsageError
from vitkit.training import RECIPES


def test_the_help_lists_the_names_of_all_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert [name for name in RECIPES if name not in text] == []


def test_the_recipe_is_named_explicitly_or_by_the_data() -> None:
    assert Train("digits", "out").resolve() == RECIPES["digits"]
    assert Train("photos", "out").resolve() == RECIPES["scratch"].replace(data="photos")
    assert Train("photos", "out", recipe="finetune", init="weights").resolve().head == "probe"


def test_options_change_the_recipe() -> None:
    found = Train("digits", "out", epochs=3, seed=7, teacher="big", set=("optimizer.lr=0.1",)).resolve()
    assert (found.budget.epochs, found.seed, found.distill.teacher, found.optimizer.lr) == (3, 7, "big", 0.1)
    assert Train("digits", "out", minutes=2).resolve().budget.minutes == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 1, "minutes": 1}, "a run has one budget"),
        ({"minutes": 0}, "--minutes 0: must be above 0"),
        ({"processes": 0}, "--processes 0: must be at least 1"),
        ({"init": "weights", "model": "vit_nano_patch4_32"}, "remove --model"),
        ({"recipe": "finetune"}, "recipe 'finetune' needs pretrained weights: pass --init WEIGHTS"),
        ({"set": ("budget.epochs=-3",)}, r"budget.epochs must be above 0 \(got -3\); budget.minutes limits the time"),
    ],
)
def test_contradicting_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Train("digits", "out", **options).resolve()


def scans(folder: Path) -> Path:
    """Write 12-bit scans as 16-bit PNGs. All of them become grey level 8 if they are scaled by the range of 16 bits."""
    draw = np.random.default_rng(0)
    for name, low in (("dark", 2000), ("light", 2080)):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(draw.integers(low, low + 50, (8, 8), dtype=np.uint16)).save(folder / name / f"{i}.png")
    return folder


def test_a_range_mends_12_bit_images_and_stays_with_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = scans(tmp_path / "scans")
    quick = ["--model", "vit_digits_patch2_8", "--epochs", "10", "--set", "preprocess.size=8"]
    found = {}
    for name, setting in (("plain", []), ("mended", ["--set", "preprocess.range=(1950, 2150)"])):
        assert main(["train", str(data), "--out", str(tmp_path / name), *quick, *setting]) == 0
        result = json.loads((tmp_path / name / "result.json").read_text(encoding="utf-8"))
        found[name] = result["val"]["top1"], capsys.readouterr().err
    assert "use 2000 to 2129 of 0 to 65535: 2 of 256 grey levels; the images become dark and lose" in found["plain"][1]
    assert "--set 'preprocess.range=(0, 4095)'" in found["plain"][1]
    assert "use 2000 to 2129 of 1950 to 2150: 165 of 256 grey levels\n" in found["mended"][1]
    assert (found["plain"][0], found["mended"][0]) == (0.5, 1.0)
    assert json.loads((tmp_path / "mended" / "model" / "config.json").read_text())["preprocess"]["range"] == [
        1950,
        2150,
    ]
    predictor = vitkit.Predictor(tmp_path / "mended")
    for name in ("dark", "light"):
        image = data / name / "0.png"
        assert predictor(image)[0].label == name
        assert vitkit.explain(tmp_path / "mended", [image]).labels == (name,)
    with running(str(tmp_path / "mended")) as server:
        for name in ("dark", "light"):
            answer = server.post("/v1/predict", (data / name / "0.png").read_bytes()).json()
            assert answer["results"][0]["predictions"][0]["label"] == name
