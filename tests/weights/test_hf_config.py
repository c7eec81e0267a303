import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo, create_model
from vitkit.weights.hf_config import read_config, write_config, write_preprocessor

from .conftest import CONFIG

INFO = ModelInfo(class_names=("ant", "bee", "cat"))


@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_a_written_config_is_read_back(fit):
    config = create_model({**CONFIG, "mlp": "gelu_tanh"}, device="meta").config
    preprocess = Preprocess(size=(8, 8), fit=fit, crop_fraction=0.5, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    values = write_config("hf-vit", config, INFO)
    assert values["architectures"] == ["ViTForImageClassification"]
    found = read_config(values, write_preprocessor(preprocess), "here")
    assert found.class_names == ("ant", "bee", "cat")
    assert found.preprocess == preprocess
    for name, value in found.config.items():
        assert value == getattr(config, name), name
    assert found.config["mlp"] == "gelu_tanh"


def test_placeholder_labels_are_not_class_names():
    values = write_config("hf-vit", create_model(CONFIG, device="meta").config, ModelInfo())
    assert values["id2label"]["2"] == "LABEL_2"
    assert read_config(values, None, "here").class_names == ()


def test_preprocessing_without_an_equivalent_is_not_written():
    assert write_preprocessor(Preprocess(fit="pad")) is None
    assert write_preprocessor(Preprocess(channels=1)) is None
    assert write_preprocessor(Preprocess(size=(8, 16))) is None


def test_unknown_models_and_unsupported_values_are_refused():
    for values, message in (
        ({"model_type": "bert"}, "here: transformers' model_type 'bert' is not supported"),
        ({"model_type": "vit", "hidden_act": "relu"}, "here: hidden_act='relu' is not supported"),
    ):
        with pytest.raises(WeightsError, match=message):
            read_config(values, None, "here")
    with pytest.raises(WeightsError, match="rescale_factor=1 is not supported"):
        read_config({"model_type": "vit"}, {"rescale_factor": 1}, "here")
