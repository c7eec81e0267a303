"""`explain`: its inputs, its result, and its errors."""

import numpy as np
import pytest
import torch
from PIL import Image

import vitkit
from tests.model.small import random_images, small_model
from vitkit.data.preprocess import Preprocess
from vitkit.errors import UsageError
from vitkit.explanation import METHODS, attention_map, explain
from vitkit.inference.image_inputs import MAX_PREVIEW_SIDE
from vitkit.model import ModelInfo

NAMES = ("ant", "bee", "cat", "dog", "eel")


def named(fit="crop", **options):
    model = small_model(**options)
    preprocess = Preprocess(size=(16, 24), crop_fraction=0.8, fit=fit)
    model.info = ModelInfo(class_names=NAMES, preprocess=preprocess)
    return model


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_map_per_image_and_the_models_own_logits(method):
    model = named()
    images = random_images(model, batch=3)
    found = vitkit.explain(model, images, method)
    assert found.maps.shape == (3, 4, 3)
    assert found.maps.dtype == np.float32
    assert np.isfinite(found.maps).all()
    with torch.no_grad():
        logits = model(images)
    np.testing.assert_allclose(found.logits, logits.numpy(), rtol=1e-4, atol=1e-5)
    assert found.targets.tolist() == logits.argmax(dim=1).tolist()
    assert found.labels == tuple(NAMES[i] for i in found.targets)
    np.testing.assert_allclose(found.scores, logits.softmax(dim=1).amax(dim=1).numpy(), rtol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_images_are_independent_and_the_training_mode_is_restored(method, monkeypatch):
    model = named(dropout=0.5, drop_path=0.5).train()
    images = random_images(model, batch=3)
    together = explain(model, images, method).maps
    assert model.training
    one_by_one = explain(model, images, method, batch_size=1).maps
    monkeypatch.setattr("vitkit.explanation.result.MAX_ATTENTION_WEIGHTS", 1)  # then the default is one image
    np.testing.assert_array_equal(explain(model, images, method).maps, one_by_one)
    if method != "random":
        np.testing.assert_allclose(one_by_one, together, rtol=1e-4, atol=1e-6)
    assert explain(model, images[:1], method).maps.shape == (1, 4, 3)


def test_image_files_and_arrays_go_through_the_models_preprocessing(tmp_path):
    model, pixels = named(), noise(40, 50)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    batch = model.info.preprocess.normalize(model.info.preprocess.batch([pixels]))
    expected = explain(model, batch, "attribution").maps
    for one in (pixels, Image.fromarray(pixels), tmp_path / "a.png", str(tmp_path / "a.png"), [pixels]):
        np.testing.assert_allclose(explain(model, one, "attribution").maps, expected, rtol=1e-5)
    many = explain(model, [tmp_path / "a.png", pixels], "attention")
    assert many.images.names == (str(tmp_path / "a.png"), "image 1")
    assert many.images.sizes.tolist() == [[40, 50], [40, 50]]


def test_the_model_may_be_a_path(tmp_path):
    model, pixels = named(), noise(40, 50)
    vitkit.save_model(model, tmp_path / "m")
    found = explain(tmp_path / "m", pixels, "rollout")
    np.testing.assert_allclose(found.maps, explain(model, pixels, "rollout").maps, rtol=1e-5)


def test_another_image_size_gives_another_grid():
    found = explain(named(), noise(40, 50), "attention", image_size=(32, 40))
    assert found.maps.shape == (1, 8, 5)


@pytest.mark.parametrize(("fit", "size"), [("crop", (40, 90)), ("pad", (40, 90)), ("squash", (90, 80))])
def test_the_region_is_the_crop_that_the_model_received(fit, size):
    """Move a bright square over the image: it appears in the model's input where the region predicts."""
    model = named(fit)
    for top, left in ((18, 40), (30, 20), (10, 26)):
        pixels = np.zeros((*size, 3), dtype=np.uint8)
        pixels[top : top + 6, left : left + 6] = 255
        seen = model.info.preprocess.array(pixels)[..., 0].astype(float)
        if fit == "pad":
            seen[seen == 128] = 0  # its fill
        rows, columns = np.indices(seen.shape) + 0.5
        centre = (rows * seen).sum() / seen.sum() / 16, (columns * seen).sum() / seen.sum() / 24
        x0, y0, x1, y1 = explain(model, pixels, "attention").regions[0]
        assert y0 + centre[0] * (y1 - y0) == pytest.approx(top + 3, abs=1.5)
        assert x0 + centre[1] * (x1 - x0) == pytest.approx(left + 3, abs=1.5)


def test_a_large_image_keeps_a_small_preview_and_original_coordinates():
    found = explain(named(), noise(1500, 3000), "attention")
    assert found.images.previews[0].shape == (MAX_PREVIEW_SIDE // 2, MAX_PREVIEW_SIDE, 3)
    assert found.images.sizes.tolist() == [[1500, 3000]]
    assert found.regions[0][3] == pytest.approx(1500 * 0.9, rel=0.03)


def test_a_target_is_a_name_or_index_for_all_images_or_each():
    model = named()
    images = random_images(model)
    each = explain(model, images, "attribution", target=["dog", 1])
    assert each.labels == ("dog", "bee")
    assert explain(model, images, "attribution", target="1").labels == ("bee", "bee")  # as a command line has it
    np.testing.assert_allclose(each.maps[1], explain(model, images, "attribution", target="bee").maps[1], rtol=1e-5)
    assert abs(each.maps[0] - explain(model, images, "attribution", target="ant").maps[0]).max() > 1e-4


def test_attention_pooling_uses_its_own_query_unless_a_layer_is_given():
    model = named(pooling="attention")
    images = random_images(model)
    own = explain(model, images, "attention").maps
    last = explain(model, images, "attention", layer=-1).maps
    np.testing.assert_allclose(last, attention_map(model, images).mean(dim=1).numpy(), rtol=1e-5)
    assert abs(own - last).max() > 1e-3


REFUSED_TARGETS = {
    "class": (dict(method="attribution", target="bea"), "unknown class 'bea'; did you mean 'bee'"),
    "class number": (dict(method="attribution", target=5), "class 5 is out of range: use 0…4"),
    "classes": (dict(method="attribution", target=[1, 2, 3]), "3 classes for 2 images"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED_TARGETS.values(), ids=REFUSED_TARGETS)
def test_invalid_targets_are_refused_in_one_line(options, message):
    model = named()
    with pytest.raises(UsageError) as caught:
        explain(model, random_images(model), **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (noise(3, 40), "image 0 has 3×40 pixels, less than one patch of 4×8"),
        (torch.randn(1, 3, 2, 24), "image height 2 is not a multiple of the patch height 4"),
        (torch.randn(3, 16, 24), "expected (batch, channels, height, width)"),
        ([], "no images given"),
    ],
    ids=["array", "tensor", "no batch", "none"],
)
def test_invalid_images_are_refused_in_one_line(images, message):
    with pytest.raises(UsageError) as caught:
        explain(named(), images, "attention")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_images_need_preprocessing_settings():
    with pytest.raises(UsageError, match="has no preprocessing settings: pass a normalised batch"):
        explain(small_model(), noise(40, 50))
