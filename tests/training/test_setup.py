"""Set-up: batch size, model, class weights, and what is refused before a run."""

from pathlib import Path

import numpy as np
import pytest

from tests.training.small import run
from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.errors import ConfigError, UsageError
from vitkit.training import Recipe
from vitkit.training.setup import choose_batch_size, choose_model


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
    path.write_text(before.replace('"mlp_width": 32', '"mlp_width": 48'), encoding="utf-8")
    with pytest.raises(UsageError, match="another architecture under the name"):
        run(tmp_path, resume=True)
    path.write_text(before, encoding="utf-8")
    run(tmp_path, resume=True)
