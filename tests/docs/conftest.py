"""Fixtures: the files that the pages refer to. Photographs in class folders, new ones, weights, and a trained run."""

import shutil
from pathlib import Path

import pytest

import vitkit
from vitkit.cli.main import main
from vitkit.weights.convert import write_model


@pytest.fixture(scope="session")
def reader_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    _write_photographs(folder)
    _write_weights(folder / "deit_tiny.safetensors")
    options = ["--init", "deit_tiny.safetensors", "--recipe", "finetune", "--epochs", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "photos", "--out", "runs/mine", *options]) == 0
    return folder


def _write_photographs(folder: Path) -> None:
    """Write crops of three photographs of scikit-image: 14 of each for training, and one new image of each."""
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


def _write_weights(path: Path) -> None:
    """Write an untrained stand-in for DeiT-Tiny: its layout, width and heads, but two blocks and small images."""
    model = vitkit.create_model("vit_tiny_patch16_224", depth=2, image_size=64, seed=0)
    write_model(model, path, "timm")


@pytest.fixture
def page_folder(reader_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fresh folder with the files, as the working directory of one page."""
    for name in ("photos", "new"):
        shutil.copytree(reader_files / name, tmp_path / name)
    shutil.copy(reader_files / "deit_tiny.safetensors", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vitkit.report.faithfulness.MAX_IMAGES", 4)  # a faster measurement
    monkeypatch.setenv("VITKIT_CACHE", str(reader_files / "cache"))
    return tmp_path
