"""`vitkit embed`: one row of features per image."""

import json
from pathlib import Path

import numpy as np
import pytest

from vitkit.cli.main import main
from vitkit.data.preprocess import Preprocess
from vitkit.model import ModelInfo, create_model
from vitkit.weights.model_dir import save_model


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model without a classifier and without class names: embedding needs neither."""
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    model = create_model("vit_digits_patch2_8", num_classes=0, seed=0)
    preprocess = Preprocess(size=8, channels=1, crop_fraction=1.0, mean=(0.3,), std=(0.4,))
    return str(save_model(model, tmp_path / "model", ModelInfo(preprocess=preprocess)))


def test_every_image_of_every_split_is_written(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features.npz"
    assert main(["embed", weights, "digits", "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    table = np.load(out)
    assert answer == {"out": str(out), "images": 1797, "features": table["features"].shape[1], "skipped": []}
    assert len(table["features"]) == 1797
    assert set(table["split"]) == {"train", "val", "test"}


def test_one_split_can_be_chosen(weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "features.npz"
    assert main(["embed", weights, "digits", "--split", "test", "--out", str(out)]) == 0
    assert "359 images" in capsys.readouterr().out
    assert set(np.load(out)["split"]) == {"test"}


def test_bad_arguments_are_refused_before_the_work(
    weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["embed", weights, "digits", "--out", str(tmp_path / "f.txt")]) == 2
    assert ".npz or .parquet" in capsys.readouterr().err
    assert main(["embed", weights, "digits", "--split", "tset", "--out", str(tmp_path / "f.npz")]) == 2
    assert main(["embed", weights, "digits", "--batch", "0", "--out", str(tmp_path / "f.npz")]) == 2
    assert not list(tmp_path.glob("f.*"))
