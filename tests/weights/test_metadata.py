import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo, create_model
from vitkit.weights.metadata import LoadReport, as_pair, require_metadata

from .conftest import CONFIG


def test_metadata_that_predictions_need_is_returned_or_requested_by_option():
    model = create_model(CONFIG)
    with pytest.raises(WeightsError, match=r"vit.pth has no preprocessing.*--preprocess FILE") as caught:
        require_metadata(model, "vit.pth")
    assert "\n" not in str(caught.value)
    model.info = ModelInfo(preprocess=Preprocess(size=(8, 8)))
    with pytest.raises(WeightsError, match=r"vit.pth has no class names.*--class-names FILE"):
        require_metadata(model, "vit.pth")
    model.info = model.info.replace(class_names=("a", "b", "c"))
    assert require_metadata(model, "vit.pth") == (("a", "b", "c"), Preprocess(size=(8, 8)))


def test_the_origin_counts_dropped_tensors_by_reason():
    report = LoadReport("vit.pth", "timm", create_model(CONFIG).config, 9, {"a": "text", "b": "text", "c": "mask"})
    assert report.origin()["dropped"] == {"text": 2, "mask": 1}
    assert report.origin()["source"] == "vit.pth"


def test_sizes_of_json_become_pairs():
    assert as_pair(4) == as_pair([4, 4]) == (4, 4)
    assert as_pair((3, 5)) == (3, 5)
