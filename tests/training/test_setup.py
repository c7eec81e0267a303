"""Set-up: batch size, model, class weights, and what is refused before a run."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.training.small import finetune, recipe, run, train_until
from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.errors import ConfigError, UsageError
from vitkit.training import Recipe
from vitkit.training.setup import choose_batch_size, choose_model
from vitkit.training.train import train
from vitkit.weights.load import load_model
from vitkit.weights.model_dir import save_model


@pytest.mark.parametrize(("images", "batch"), [(10, 10), (33, 16), (1079, 32), (2640, 64), (50_000, 256), (10**6, 256)])
def test_the_batch_size_fits_the_data_by_default(images: int, batch: int) -> None:
    assert choose_batch_size(Recipe(), images, 1) == batch


@pytest.mark.parametrize(
    ("shape", "model"),
    [((8, 8), "vit_digits_patch2_8"), ((32, 32, 3), "vit_pico_stem4_32"), ((240, 320, 3), "vit_tiny_patch16_224")],
)
def test_the_model_fits_the_images_by_default(shape: tuple[int, ...], model: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    data = Dataset("made", ["a", "b"], {"train": Split(ArrayImages(pixels, "made"), np.arange(12) % 2)})
    assert choose_model(Recipe(), data).model == model
    assert choose_model(Recipe(model="vit_nano_patch4_32"), data).model == "vit_nano_patch4_32"


def test_the_batch_size_never_exceeds_the_number_of_images() -> None:
    assert choose_batch_size(Recipe(batch=64), 33, 1) == 33
    assert choose_batch_size(Recipe(batch=64), 100, 1) == 64


def test_sizes_that_do_not_fit_the_patch_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"schedule\.sizes: 7 \(from 0\.5\) must be a multiple of the patch"):
        run(tmp_path / "run", "schedule.sizes=((0.0, 4), (0.5, 7))")
    assert not (tmp_path / "run").exists()


def test_balanced_sampling_and_class_weights_run(tmp_path: Path) -> None:
    assert run(tmp_path / "run", "balanced_sampling=true", "loss.class_weights=balanced").steps == 7


def test_a_run_is_not_resumed_with_another_architecture_of_the_same_name(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / "checkpoints" / "config.json"
    before = path.read_text(encoding="utf-8")
    changed = re.sub(r',\s*"config_sha256": "\w+"', "", before.replace('"mlp_width": 32', '"mlp_width": 48'))
    path.write_text(changed, encoding="utf-8")
    with pytest.raises(UsageError, match="another architecture under the name"):
        run(tmp_path, resume=True)
    path.write_text(before, encoding="utf-8")
    run(tmp_path, resume=True)


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Return a folder of PNG files so large that the fingerprint reads only their ends."""
    draw = np.random.default_rng(0)
    for i in range(40):
        path = tmp_path / "photographs" / ("train" if i < 32 else "val") / "ab"[i % 2] / f"{i:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (256, 256, 3), np.uint8)).save(path)
    return tmp_path / "photographs"


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_run_is_not_resumed_after_a_file_became_unreadable(photographs: Path, tmp_path: Path, split: str) -> None:
    """Its content hash need not change, but the order of all other images would."""
    settings, out = recipe(f"data={photographs}", "batch=8", "corrupt_limit=0.5", epochs=1.0), tmp_path / "run"
    train_until(2, settings, out)
    victim = next((photographs / split / "a").iterdir())
    content = victim.read_bytes()
    middle = len(content) // 2
    victim.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])
    with pytest.raises(UsageError, match=rf"--resume: the readable {split} images .* have changed \(1 .*{victim.name}"):
        train(settings, out, resume=True, quiet=True)
    victim.write_bytes(content)
    moved = shutil.move(photographs, tmp_path / "moved")
    shutil.copytree(moved, photographs)  # new files with the same content
    assert train(settings, out, resume=True, quiet=True).steps == 4


@pytest.mark.parametrize("change", ["weights", "preprocessing"])
def test_a_run_is_not_resumed_after_its_pretrained_weights_changed(weights: Path, tmp_path: Path, change: str) -> None:
    init, out = tmp_path / "init", tmp_path / "run"
    model = load_model(weights)
    save_model(model, init)
    settings = finetune(init, "machine.precision=fp32")
    train_until(2, settings, out)
    if change == "weights":
        model.blocks[0].norm1.bias.data[0] += 1e-3
    else:
        model.info = model.info.replace(preprocess=model.info.preprocess.replace(mean=(0.4,)))
    save_model(model, init)
    with pytest.raises(UsageError, match=r"--resume: the pretrained weights or the preprocessing of .*init have"):
        train(settings, out, resume=True, quiet=True)


def test_a_checkpoint_without_hashes_of_its_inputs_is_resumed(tmp_path: Path) -> None:
    train_until(2, recipe(), tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("step-*.json"):
        numbers = json.loads(path.read_text(encoding="utf-8"))
        assert set(numbers.pop("inputs")) == {"train", "val", "init"}
        path.write_text(json.dumps(numbers), encoding="utf-8")
    assert run(tmp_path / "run", resume=True).weights_sha256 == run(tmp_path / "again").weights_sha256
