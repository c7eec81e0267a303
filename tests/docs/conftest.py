"""What a reader of the pages has at hand: photographs in class folders, new ones, published weights, a trained run."""

import shutil
from pathlib import Path

import pytest

import vitkit
from vitkit.cli.main import main
from vitkit.weights.convert import write_model


@pytest.fixture(scope="session")
def belongings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    _photographs(folder)
    _weights(folder / "deit_tiny.safetensors")
    words = ["--init", "deit_tiny.safetensors", "--recipe", "finetune", "--epochs", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "photos", "--out", "runs/mine", *words]) == 0
    return folder


def _photographs(folder: Path) -> None:
    """Parts of three photographs that scikit-image ships: 14 of each to learn from, one that is new."""
    from PIL import Image
    from skimage import data

    for label, picture in (("cat", data.cat()), ("coffee", data.coffee()), ("rocket", data.rocket())):
        photograph = Image.fromarray(picture)
        (folder / "photos" / label).mkdir(parents=True)
        (folder / "new").mkdir(exist_ok=True)
        for number in range(15):
            left, top = 17 * number, 9 * number
            file = f"photos/{label}/{number - 1:02d}.png" if number else f"new/{label}.png"
            photograph.crop((left, top, left + 160, top + 160)).resize((72, 72)).save(folder / file)


def _weights(path: Path) -> None:
    """A file of DeiT-Tiny's layout, width and heads, but of two blocks and for small images: quick, and untrained."""
    model = vitkit.create_model("vit_tiny_patch16_224", depth=2, image_size=64, seed=0)
    write_model(model, path, "timm")


@pytest.fixture
def desk(belongings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of their own for each page; the run is there unless the page makes it."""
    for name in ("photos", "new"):
        shutil.copytree(belongings / name, tmp_path / name)
    shutil.copy(belongings / "deit_tiny.safetensors", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vitkit.report.faithfulness.MAX_IMAGES", 4)  # a faster measurement
    monkeypatch.setenv("VITKIT_CACHE", str(belongings / "cache"))
    return tmp_path
