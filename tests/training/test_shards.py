"""Training from shards gives the same bits as training from the packed data."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.cli.main import main

pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")

SETTINGS = {"config.depth": 1, "batch": 16, "machine.precision": "fp32", "machine.compile": "off"}


def weights(data: Path | str, out: Path, capsys: pytest.CaptureFixture[str], *words: str, **more: object) -> str:
    changes = [word for key, value in {**SETTINGS, **more}.items() for word in ("--set", f"{key}={value}")]
    assert main(["train", str(data), "--out", str(out), "--seed", "1", "--json", *words, *changes]) == 0
    return str(json.loads(capsys.readouterr().out)["weights_sha256"])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i in range(60):
        place = tmp_path / "photos" / "abc"[i % 3]
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (24, 20 + i % 5, 3), np.uint8)
        Image.fromarray(pixels).save(place / f"{i:03}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("crop", ["resized", "pad"])  # read from files, and held in memory
def test_a_folder_and_its_shards_give_the_same_weights(
    crop: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for name, to in {"tars": "tar", "tables": "parquet", "back": "folder"}.items():
        assert main(["pack", str(photos), str(tmp_path / name), "--to", to, "--shard-size", "25kB", "--json"]) == 0
        packed = json.loads(capsys.readouterr().out)
        assert packed["shards"] > 2 or to == "folder"
    for name in ("photos", "tars", "tables", "back"):
        words = ("--model", "vit_nano_patch4_32", "--epochs", "1")
        found[name] = weights(tmp_path / name, tmp_path / f"run-{name}", capsys, *words, **{"augment.crop": crop})
    assert len(set(found.values())) == 1, found


def test_arrays_and_their_shards_give_the_same_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", "digits", str(tmp_path / "shards"), "--shard-size", "1MB", "--json"]) == 0
    capsys.readouterr()
    words = ("--recipe", "digits", "--epochs", "0.1")
    packed = weights(tmp_path / "shards", tmp_path / "a", capsys, *words)
    assert weights("digits", tmp_path / "b", capsys, *words) == packed


@pytest.mark.slow
def test_photographs_and_their_shards_give_the_same_weights(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grocery = shared_data / "grocery.parquet"
    assert main(["pack", str(grocery), str(tmp_path / "shards"), "--shard-size", "8MB", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 2936
    words = ("--model", "vit_nano_patch4_32", "--epochs", "0.1")
    found = {weights(data, tmp_path / data.stem, capsys, *words, **{"augment.crop": "resized"}) for data in
             (grocery, tmp_path / "shards")}  # fmt: skip
    assert len(found) == 1
