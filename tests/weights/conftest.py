"""Small checkpoints, and the published weights that the tests share."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vitkit.errors import WeightsError
from vitkit.model import create_model
from vitkit.weights.load import load_model

CONFIG = dict(width=64, depth=2, heads=2, head_width=32, mlp_width=32, image_size=8, patch_size=4, num_classes=3)


def tensors() -> dict[str, torch.Tensor]:
    """Return the state dict of a small model."""
    return dict(create_model(CONFIG, seed=0).state_dict())


@pytest.fixture
def refused(tmp_path):
    """Load a file and expect a one-line error; the peak memory of the process must hardly grow."""
    resource = pytest.importorskip("resource", reason="peak memory is measured on POSIX only")

    def check(path: Path, message: str) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(WeightsError, match=message) as caught:
            load_model(path)
        assert "\n" not in str(caught.value)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB

    return check


@pytest.fixture
def bare(tmp_path):
    path = tmp_path / "vit.safetensors"
    save_file(create_model(CONFIG, seed=0).state_dict(), path)
    return path


@pytest.fixture
def deit(shared_data):
    path = shared_data / "deit_tiny_patch16_224_in1k.safetensors"
    if not path.is_file():
        pytest.skip(f"no {path.name} in {shared_data}")
    return path, shared_data / "imagenet1k_classes.json"


def photographs(folder):
    from PIL import Image

    data = pytest.importorskip("skimage.data", reason="pip install 'vitkit[dev]'")
    for name in ("chelsea", "coffee"):
        Image.fromarray(getattr(data, name)()).save(folder / f"{name}.png")
