"""Real short runs, trained once."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.report import write_report
from vitkit.training import get_recipe
from vitkit.training.train import train

NASTY = '<i>cat & "dog"\'s'  # a class that would break a careless page


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of a small model on the digits."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        recipe = get_recipe("digits").override(["budget.epochs=1", "config.depth=2", f"seed={seed}"])
        train(recipe, folder / f"seed{seed}", quiet=True)
    return [folder / "seed0", folder / "seed1"]


@pytest.fixture(scope="session")
def page(runs: list[Path]) -> str:
    return write_report(runs[0]).read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of class folders with files of several sizes, one of them broken."""
    folder, rng = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for k, label in enumerate(("bird", NASTY)):
        (folder / label).mkdir()
        for i in range(24):
            noise = rng.integers(0, 90, (40 + i, 48, 3)) + 80 * k
            Image.fromarray(noise.astype(np.uint8)).save(folder / label / f"{i}.jpg")
    (folder / "bird" / "0.jpg").write_bytes(b"no image at all")
    return folder


@pytest.fixture(scope="session")
def photograph_run(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "photographs"
    changes = [f"data={photographs}", "model=vit_nano_patch4_32", "config.depth=1", "batch=8", "budget.epochs=0.5",
               "corrupt_limit=0.1", "machine.precision=fp32", "machine.compile=off", "machine.threads=1"]  # fmt: skip
    train(get_recipe("scratch").override(changes), run, quiet=True)
    return run
