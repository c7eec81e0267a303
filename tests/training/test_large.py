"""Data sets that do not fit into memory give the same result, and are checked once."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.data import loader as feed
from vitkit.data.preprocess import Preprocess
from vitkit.training import Result, get_recipe
from vitkit.training.train import train

SHORT = ["model=vit_nano_patch4_32", "config.depth=1", "batch=8", "budget.epochs=1", "augment.crop=pad"]
SHORT += ["machine.precision=fp32", "machine.compile=off"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, chance = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for split, count in (("train", 24), ("val", 20), ("test", 12)):
        for i in range(count):
            place = root / split / "ab"[i % 2]
            place.mkdir(parents=True, exist_ok=True)
            pixels = chance.integers(100 * (i % 2), 156 + 100 * (i % 2), (40, 44, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{i}.jpg")
    return root


def run(folder: Path, out: Path, **more: bool) -> Result:
    return train(get_recipe("scratch").override([*SHORT, f"data={folder}"]), out, quiet=True, **more)


@pytest.fixture(scope="module")
def held(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(folder, tmp_path_factory.mktemp("runs") / "held")


def numbers(result: Result) -> tuple:
    assert result.test is not None
    return result.weights_sha256, *((m["n"], m["top1"], m["nll"]) for m in (result.val, result.test))


def test_streamed_splits_give_the_same_model_and_metrics(
    folder: Path, held: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MEMORY", 0)
    assert numbers(run(folder, tmp_path / "streamed")) == numbers(held)


def test_a_second_start_checks_no_file_again(
    folder: Path, held: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MEMORY", 0)
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    checked: list[str] = []
    check = Preprocess.check_decodable
    monkeypatch.setattr(
        Preprocess, "check_decodable", lambda self, encoded, name: checked.append(name) or check(self, encoded, name)
    )
    first = run(folder, tmp_path / "run")
    assert len(checked) == 24 + 20 + 12
    again = run(folder, tmp_path / "run", resume=True)
    assert len(checked) == 24 + 20 + 12
    assert numbers(first) == numbers(again) == numbers(held)
