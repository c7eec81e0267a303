"""`explain`: what goes in, what comes out, and what is refused in one line."""

import numpy as np
import pytest
import torch
from PIL import Image

import vitkit
from tests.model.small import random_images, small_model
from vitkit.data.preprocess import Preprocess
from vitkit.errors import UsageError
from vitkit.explanation import METHODS, attention_map, explain
from vitkit.explanation.occlusion import cover, occlusion, windows
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
def test_images_do_not_meet_and_the_models_mode_is_as_before(method, monkeypatch):
    model = named(dropout=0.5, drop_path=0.5).train()
    images = random_images(model, batch=3)
    together = explain(model, images, method).maps
    assert model.training
    monkeypatch.setattr("vitkit.explanation.result.ATTENTION_AT_ONCE", 1)  # one image at a time
    alone = explain(model, images, method).maps
    if method != "random":
        np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-6)
    assert explain(model, images[:1], method).maps.shape == (1, 4, 3)


def test_paths_pillow_images_and_arrays_go_through_the_models_preprocessing(tmp_path):
    model, pixels = named(), noise(40, 50)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    batch = model.info.preprocess.normalize(model.info.preprocess.batch([pixels]))
    expected = explain(model, batch, "attribution").maps
    for one in (pixels, Image.fromarray(pixels), tmp_path / "a.png", str(tmp_path / "a.png"), [pixels]):
        np.testing.assert_allclose(explain(model, one, "attribution").maps, expected, rtol=1e-5)
    many = explain(model, [tmp_path / "a.png", pixels], "attention")
    assert many.images.names == (str(tmp_path / "a.png"), "image 1")
    assert many.images.sizes.tolist() == [[40, 50], [40, 50]]


def test_a_model_folder_may_stand_for_the_model(tmp_path):
    model, pixels = named(), noise(40, 50)
    vitkit.save_model(model, tmp_path / "m")
    found = explain(tmp_path / "m", pixels, "rollout")
    np.testing.assert_allclose(found.maps, explain(model, pixels, "rollout").maps, rtol=1e-5)


def test_another_size_makes_another_grid():
    found = explain(named(), noise(40, 50), "attention", image_size=(32, 40))
    assert found.maps.shape == (1, 8, 5)


@pytest.mark.parametrize(("fit", "size"), [("crop", (40, 90)), ("pad", (40, 90)), ("squash", (90, 80))])
def test_the_region_is_where_the_models_pixels_lie_in_the_photograph(fit, size):
    """A bright square is moved over the photograph: the model's input lights up where the region says it should."""
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


def test_of_a_large_photograph_a_small_copy_is_kept_in_the_originals_coordinates():
    found = explain(named(), noise(1500, 3000), "attention")
    assert found.images.previews[0].shape == (MAX_PREVIEW_SIDE // 2, MAX_PREVIEW_SIDE, 3)
    assert found.images.sizes.tolist() == [[1500, 3000]]
    assert found.regions[0][3] == pytest.approx(1500 * 0.9, rel=0.03)


def test_a_class_is_explained_by_name_or_number_for_all_or_each():
    model = named()
    images = random_images(model)
    each = explain(model, images, "attribution", target=["dog", 1])
    assert each.labels == ("dog", "bee")
    assert explain(model, images, "attribution", target="1").labels == ("bee", "bee")  # as a command line has it
    np.testing.assert_allclose(each.maps[1], explain(model, images, "attribution", target="bee").maps[1], rtol=1e-5)
    assert abs(each.maps[0] - explain(model, images, "attribution", target="ant").maps[0]).max() > 1e-4


def test_attention_pooling_is_asked_for_its_own_query_unless_a_layer_is_named():
    model = named(pooling="attention")
    images = random_images(model)
    own = explain(model, images, "attention").maps
    last = explain(model, images, "attention", layer=-1).maps
    np.testing.assert_allclose(last, attention_map(model, images).mean(dim=1).numpy(), rtol=1e-5)
    assert abs(own - last).max() > 1e-3


def test_occlusion_is_the_fall_of_the_log_probability_averaged_over_the_windows_that_cover_a_patch():
    model = named()
    images = random_images(model, batch=1)
    found, _ = occlusion(model, images, torch.tensor([2]), window=2)
    expected, covered = torch.zeros(4, 3), torch.zeros(4, 3)
    with torch.no_grad():
        whole = model(images).log_softmax(dim=1)[0, 2]
        for row in (0, 1, 2):
            for column in (0, 1):
                hidden = images.clone()
                hidden[:, :, 4 * row : 4 * row + 8, 8 * column : 8 * column + 16] = 0
                fall = whole - model(hidden).log_softmax(dim=1)[0, 2]
                expected[row : row + 2, column : column + 2] += fall
                covered[row : row + 2, column : column + 2] += 1
    torch.testing.assert_close(found[0], expected / covered, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("grid", "side", "count"), [((14, 14), 3, 49), ((4, 3), 1, 12), ((5, 9), 5, 3), ((7, 7), 7, 1)]
)
def test_windows_leave_no_patch_out(grid, side, count):
    found = windows(grid, side)
    assert len(found) == count
    assert found.any(dim=0).all()
    assert (found.sum(dim=(1, 2)) == side * side).all()


def test_covering_changes_the_pixels_of_the_mask_and_no_others():
    image = torch.randn(3, 8, 16)
    masks = torch.zeros(1, 2, 2, dtype=torch.bool)
    masks[0, 1, 0] = True
    hidden = cover(image, masks, (4, 8))[0]
    assert (hidden[:, 4:, :8] == 0).all()
    hidden[:, 4:, :8] = image[:, 4:, :8]
    assert torch.equal(hidden, image)


REFUSED = {
    "unknown method": (dict(method="atention"), "unknown method 'atention'; did you mean 'attention'"),
    "layer": (dict(method="attention", layer=3), "layer 3 is out of range: use 0…2"),
    "layer of rollout": (dict(method="rollout", layer=-4), "layer -4 is out of range"),
    "head": (dict(method="attention", head=2), "head 2 is out of range: use 0…1"),
    "patch": (dict(method="attention", query=(4, 0)), "patch 4,0 is not in the grid of 4×3 patches: rows are 0…3"),
    "class": (dict(method="attribution", target="bea"), "unknown class 'bea'; did you mean 'bee'"),
    "class number": (dict(method="attribution", target=5), "class 5 is out of range: there are 5, 0…4"),
    "classes": (dict(method="attribution", target=[1, 2, 3]), "3 classes for 2 images"),
    "class of attention": (dict(method="attention", target=1), "'attention' has no class to choose: leave it out"),
    "head of rollout": (dict(method="rollout", head=1), "'rollout' has no head to choose"),
    "window": (dict(method="occlusion", window=4), "a window of 4 patches does not fit a grid of 4×3: use 1…3"),
}


@pytest.mark.parametrize(("asked", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_asked_is_said_in_one_line(asked, message):
    model = named()
    with pytest.raises(UsageError) as caught:
        explain(model, random_images(model), **asked)
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
def test_images_that_cannot_be_explained_are_said_in_one_line(images, message):
    with pytest.raises(UsageError) as caught:
        explain(named(), images, "attention")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_without_a_class_token_says_what_to_ask_instead():
    model = named(class_token=False, pooling="mean")
    with pytest.raises(UsageError, match=r"no class token, it pools by 'mean': leave the query out .* ROW,COL"):
        explain(model, random_images(model), "attention", query="class")


def test_a_model_without_a_classifier_has_attention_but_no_class_maps():
    model = small_model(num_classes=0)
    assert explain(model, random_images(model), "rollout").labels == ("", "")
    with pytest.raises(UsageError, match="has no classifier, and 'attribution' explains a class"):
        explain(model, random_images(model), "attribution")


def test_photographs_need_preprocessing():
    with pytest.raises(UsageError, match="has no preprocessing settings: pass a normalised batch"):
        explain(small_model(), noise(40, 50))
