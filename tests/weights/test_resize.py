"""Adapting weights to other images and classes than they were trained with."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from tests.model.small import random_images, small_model
from tests.parity.compare import peer
from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo
from vitkit.weights.load import load_model
from vitkit.weights.model_dir import save_model
from vitkit.weights.resize import adapt_model, resize_projection

RGB = Preprocess(size=(16, 24), mean=(0.1, 0.5, 0.6), std=(0.2, 0.3, 0.5), crop_fraction=1.0)


def with_info(**options):
    model = small_model(**options)
    model.info = ModelInfo(class_names=tuple("abcde"), preprocess=RGB)
    return model


def test_without_changes_the_same_model_is_returned():
    model = with_info()
    same, said = adapt_model(model, image_size=(16, 24), num_classes=5)
    assert same is model
    assert said == []
    assert model.info.class_names == tuple("abcde")


@pytest.mark.parametrize("options", [{}, dict(distillation=True), dict(class_position=False), dict(registers=2)])
@torch.no_grad()
def test_adapting_the_image_size_keeps_the_logits_at_that_size(options):
    model = with_info(**options)
    images = random_images(model, size=(24, 40))
    expected = model(images)  # the forward resamples the positions
    adapted, said = adapt_model(model, image_size=(24, 40))
    assert_close(adapted(images), expected)
    assert adapted.config.image_size == adapted.info.preprocess.size == (24, 40)
    assert said == ["position table 4×3 → 6×5: bicubic", "image size 16×24 → 24×40"]


@pytest.mark.parametrize("factor", [2, 3])
@torch.no_grad()
def test_resized_patches_of_a_resized_image_give_the_same_tokens(factor):
    """The pseudo-inverse is exact if patches grow: no information is lost."""
    weight = torch.randn(10, 3, 4, 8, dtype=torch.float64)
    patches = torch.randn(6, 3, 4, 8, dtype=torch.float64)
    size = (4 * factor, 8 * factor)
    larger = F.interpolate(patches, size=size, mode="bicubic", antialias=True)
    assert_close(F.conv2d(larger, resize_projection(weight, size)), F.conv2d(patches, weight))


def test_resized_projection_equals_timms():
    resample = peer("timm.layers").resample_patch_embed
    weight = torch.randn(6, 3, 16, 16)
    for size in ((8, 8), (14, 14), (32, 20)):
        assert_close(resize_projection(weight, size), resample(weight, list(size)), rtol=1e-3, atol=1e-3)


def test_another_patch_size_changes_grid_and_table():
    adapted, said = adapt_model(with_info(), patch_size=4)
    assert adapted.config.grid == (4, 6)
    assert adapted.pos_embed.shape[1] == 25
    assert said[0].startswith("patches 4×8 → 4×4: projection resized by pseudo-inverse")
    with pytest.raises(WeightsError, match="image height 16 is not a multiple of the patch height 5"):
        adapt_model(with_info(), patch_size=5)
    with pytest.raises(WeightsError, match="convolutional stem"):
        adapt_model(with_info(stem=(4,)), patch_size=(8, 8))


@torch.no_grad()
def test_a_grey_image_gives_the_same_logits_in_one_channel_as_in_three():
    model = with_info()
    grey = np.random.default_rng(0).integers(0, 256, (16, 24), dtype=np.uint8)
    colour = np.repeat(grey[..., None], 3, axis=2)
    expected = model(RGB.normalize(RGB.batch([colour])))
    adapted, said = adapt_model(model, in_channels=1)
    seen = adapted.info.preprocess
    assert_close(adapted(seen.normalize(seen.batch([grey]))), expected, rtol=1e-4, atol=1e-5)
    assert "channels 3 → 1" in said[0]


@torch.no_grad()
def test_more_channels_repeat_the_filters_and_the_preprocessing():
    model = with_info()
    adapted, _ = adapt_model(model, in_channels=6)
    assert adapted.info.preprocess.mean == RGB.mean * 2
    images = random_images(model)
    assert_close(adapted(torch.cat([images, images], dim=1)), model(images))
    assert adapt_model(with_info(), in_channels=4)[0].patch_embed.proj.weight.shape[1] == 4


@pytest.mark.parametrize("options", [{}, dict(head_hidden=7), dict(distillation=True), dict(pooling="cls_mean")])
@torch.no_grad()
def test_other_classes_get_a_head_of_zeros_and_no_old_names(options):
    model = with_info(**options)
    tokens = model.forward_features(random_images(model))
    adapted, said = adapt_model(model, num_classes=9)
    assert_close(adapted.forward_features(random_images(model)), tokens)
    assert torch.equal(adapted(random_images(model)), torch.zeros(2, 9))
    assert adapted.info.class_names == ()
    assert said[0].startswith("classes 5 → 9: new zero-initialised head")
    assert ("hidden layer of 7 dropped" in said[0]) == ("head_hidden" in options)


def test_load_model_adapts_model_folders_as_well(tmp_path):
    save_model(with_info(), tmp_path / "m")
    model = load_model(tmp_path / "m", image_size=32, in_channels=1, num_classes=2, class_names=["x", "y"])
    assert model.config.image_size == (32, 32)
    assert model.info.class_names == ("x", "y")
    assert model.info.preprocess.channels == 1
    save_model(model, tmp_path / "again")
    assert load_model(tmp_path / "again").info.preprocess == model.info.preprocess
