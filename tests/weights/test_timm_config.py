import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.model import ModelInfo, create_model
from vitkit.weights.timm_config import arguments, read_config, write_config

from .conftest import CONFIG

INFO = ModelInfo(
    class_names=("ant", "bee", "cat"),
    preprocess=Preprocess(size=(8, 8), fit="pad", crop_fraction=0.9, interpolation="bilinear"),
    license="apache-2.0",
)


@pytest.mark.parametrize("options", [{}, {"mlp": "quick_gelu"}, {"pooling": "mean"}, {"pooling": "mean_all"}], ids=str)
def test_a_written_config_is_read_back(options):
    config = create_model({**CONFIG, **options}, device="meta").config
    found = read_config(write_config(config, INFO), "here")
    assert found.class_names == INFO.class_names
    assert found.preprocess == INFO.preprocess
    assert found.license == "apache-2.0"
    assert {"heads", "image_size", "pooling"} <= found.config.keys()
    for name, value in found.config.items():
        assert value == getattr(config, name), name


def test_the_timm_model_is_chosen_by_what_arguments_cannot_change():
    for options, name in (
        ({}, "vit_base_patch16_224"),
        ({"distillation": True}, "deit_base_distilled_patch16_224"),
        ({"mlp": "swiglu"}, "vit_giant_patch14_dinov2"),
        ({"norm_eps": 1e-5}, "vit_base_patch16_clip_224"),
    ):
        assert arguments(create_model({**CONFIG, **options}, device="meta").config)[0] == name
