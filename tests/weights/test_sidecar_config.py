import pytest

from vitkit.errors import WeightsError
from vitkit.model import create_model
from vitkit.weights.convert import write_model
from vitkit.weights.load import load_model

from .conftest import CONFIG

BAD_CONFIGS = {
    "no JSON": ("{", "damaged"),
    "other heads": ('{"model_type": "vit", "num_attention_heads": "many"}', "heads='many'"),
    "other width": ('{"model_type": "vit", "hidden_size": 768}', "tensors show width=64, but width=768 is given"),
    "an unknown activation": ('{"model_type": "vit", "hidden_act": "relu"}', "hidden_act='relu'"),
    "a wrong size": ('{"model_type": "vit", "image_size": [8, 8, 8]}', "image_size"),
    "labels that are none": ('{"model_type": "vit", "id2label": 3}', "damaged"),
    "deep": ("[" * 100_000, "damaged"),
}


@pytest.mark.parametrize(("text", "message"), BAD_CONFIGS.values(), ids=BAD_CONFIGS)
def test_a_sidecar_config_that_does_not_fit_is_refused(tmp_path, refused, text, message):
    write_model(create_model(CONFIG, seed=0), tmp_path / "m", "hf")
    (tmp_path / "m" / "config.json").write_text(text, encoding="utf-8")
    refused(tmp_path / "m", message)


@pytest.mark.parametrize(
    "content",
    ['["cat", "dog", "emu"]', '{"0": "cat", "1": "dog", "2": "emu"}', '{"wnid": ["a"], "name": ["cat", "dog", "emu"]}'],
)
def test_class_names_are_read_from_the_usual_formats(bare, tmp_path, content):
    (tmp_path / "names.json").write_text(content, encoding="utf-8")
    (tmp_path / "names.txt").write_text("cat\ndog\nemu\n", encoding="utf-8")
    for given in (tmp_path / "names.json", str(tmp_path / "names.txt"), ["cat", "dog", "emu"]):
        assert load_model(bare, class_names=given).info.class_names == ("cat", "dog", "emu")
    with pytest.raises(WeightsError, match="2 class names for a model of 3 classes"):
        load_model(bare, class_names=["a", "b"])
    (tmp_path / "names.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(WeightsError, match="has no class names"):
        load_model(bare, class_names=tmp_path / "names.json")
