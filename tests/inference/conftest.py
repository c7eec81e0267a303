"""Provides a small model and its exports, which are made once because tracing takes seconds."""

from pathlib import Path

import pytest
import torch

from vitkit.data.preprocess import Preprocess
from vitkit.export.export import export_model
from vitkit.model import ModelInfo, ViT, create_model
from vitkit.weights.model_dir import save_model

CONFIG = dict(width=16, depth=2, heads=2, head_width=8, mlp_width=32, image_size=16, patch_size=4, num_classes=5)
NAMES = ("cat", 'a "quoted" <dog> & co', "Ünïcode 狐", "emu", "fox, red")
PREPROCESS = Preprocess(size=(16, 16), mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))


@pytest.fixture
def engine_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of an empty engine cache."""
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def small_model(**changes: object) -> ViT:
    """Return a model with perturbed weights, so that its scores are far apart."""
    model = create_model({**CONFIG, **changes}, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    model.info = ModelInfo(class_names=NAMES, preprocess=PREPROCESS)
    return model


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(small_model(), tmp_path_factory.mktemp("model") / "small")


@pytest.fixture(scope="session")
def onnx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export whose input is normalised images of any size."""
    pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")
    out = tmp_path_factory.mktemp("onnx") / "small-onnx"
    return export_model(small_model(), out, "onnx", dynamic_size=True).folder


@pytest.fixture(scope="session")
def openvino_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export whose input is pixels of one size."""
    pytest.importorskip("openvino", reason="pip install 'vitkit[export]'")
    out = tmp_path_factory.mktemp("openvino") / "small-openvino"
    return export_model(small_model(), out, "openvino", with_preprocessing=True).folder
