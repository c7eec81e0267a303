"""`vitkit eval`: which images are evaluated, and what is refused before the work."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.cli.main import main
from vitkit.data.open import open_data
from vitkit.data.preprocess import Preprocess
from vitkit.model import ModelInfo, create_model
from vitkit.weights.model_dir import save_model

SEEN = Preprocess(size=8, channels=1, crop_fraction=1.0, mean=(0.3,), std=(0.4,))
NAMES = ("dark", "light")


def photographs(folder: Path, seed: int) -> Path:
    draw = np.random.default_rng(seed)
    for k, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            pixels = draw.integers(100 * k, 100 * k + 100, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def model(folder: Path, trained_on: Path | None) -> str:
    recipe, data = {}, {}
    if trained_on:
        recipe = {"seed": 3, "val_fraction": 0.2, "data": str(trained_on)}
        data = {"fingerprint": open_data(trained_on, seed=3, val_fraction=0.2).fingerprint}
    vit = create_model("vit_digits_patch2_8", num_classes=2, seed=0).eval()
    return str(save_model(vit, folder, ModelInfo(NAMES, SEEN, recipe=recipe, data=data)))


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return photographs(tmp_path / "known", 0)


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, int, str]:
    assert main(["eval", *words, "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    return answer["split"], answer["n"], said.err


def test_all_images_are_evaluated_if_the_model_was_not_trained_on_them(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = photographs(tmp_path / "other", 1)
    split, n, said = evaluated(capsys, model(tmp_path / "m", known), str(other))
    assert (split, n) == ("all", 40)
    assert "other has no splits and the model was not trained on it: all of its images are evaluated" in said
    split, n, _ = evaluated(capsys, model(tmp_path / "foreign", None), str(other), "--temperature")
    assert (split, n) == ("all", 40)


def test_of_its_training_images_only_the_validation_split_is_evaluated_from_any_folder(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(known, tmp_path / "elsewhere")
    for place in (known, copied):
        split, n, said = evaluated(capsys, model(tmp_path / "m", known), str(place))
        assert (split, n) == ("val", 8)
        assert "8 of the 40 train images were set aside as val" in said


def test_training_images_of_the_other_model_are_not_evaluated(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, theirs = model(tmp_path / "mine", None), model(tmp_path / "theirs", known)
    assert evaluated(capsys, mine, str(known), "--against", theirs)[0] == "val"


def test_a_split_can_be_chosen(tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated(capsys, model(tmp_path / "m", None), str(known), "--split", "val")[:2] == ("val", 4)


def test_sizes_that_the_patch_does_not_divide_are_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", model(tmp_path / "m", None), str(tmp_path / "nothing"), "--sizes", "8", "9"]) == 2
    assert "--sizes 9: must be a multiple of the patch size, 2×2 pixels" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--knn", "9"], ["--knn"]])
def test_knn_needs_no_classifier(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    vit = create_model("vit_digits_patch2_8", num_classes=0, seed=0)
    weights = str(save_model(vit, tmp_path / "m", ModelInfo(preprocess=SEEN)))
    assert main(["eval", weights, str(known), "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["split"], found["n"], found["top1"]) == ("val", 4, 1.0)
    assert found["top1_interval"][0] < 1
    if "9" in words:
        assert found["k"] == 9
        assert "left_out_top1" not in found
    else:
        assert found["left_out_top1"] > 0.9


def test_knn_refuses_incompatible_options(tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = model(tmp_path / "m", None)
    assert main(["eval", weights, str(known), "--knn", "3", "5"]) == 2
    assert main(["eval", weights, str(known), "--knn", "--temperature"]) == 2
    assert "--knn takes one number above 0 or none" in capsys.readouterr().err


def test_out_names_the_files_that_were_written(tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "eval"
    assert main(["eval", model(tmp_path / "m", None), str(known), "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(map(Path, answer["files"].values())) == set(out.iterdir())
    rows = (out / "predictions.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == answer["n"] == 40
    assert all(Path(row.split(",")[0]).is_file() for row in rows)
