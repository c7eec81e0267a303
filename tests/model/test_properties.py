"""Properties of every valid config."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from vitkit.errors import ConfigError, InputError
from vitkit.model import ViTConfig, create_model

from .small import random_images

SIDE = st.integers(1, 3)


@st.composite
def configs(draw, **fixed):
    """Draw small configs that use every option."""
    stem = tuple(draw(st.lists(st.integers(1, 5), max_size=2)))
    patch = tuple(2 ** len(stem) * draw(SIDE) for _ in "hw")
    class_token = draw(st.booleans())
    pooling = draw(st.sampled_from(["cls", "mean", "mean_all", "cls_mean", "attention", "attention_patches"]))
    position = draw(st.sampled_from(["learned", "sincos", "rotary", "learned_rotary", "none"]))
    num_classes = draw(st.integers(0, 4))
    distillation = pooling == "cls" and draw(st.booleans())
    values = dict(
        image_size=tuple(p * draw(SIDE) for p in patch),
        patch_size=patch,
        in_channels=draw(st.integers(1, 5)),
        patch_embed=draw(st.sampled_from(["conv", "linear"])),
        stem=stem,
        patch_norm=draw(st.booleans()),
        class_token=class_token or pooling in ("cls", "cls_mean"),
        distillation=distillation,
        pre_norm=draw(st.booleans()),
        registers=draw(st.integers(0, 2)),
        position=position,
        position_resample=draw(st.sampled_from(["bicubic", "bilinear"])),
        position_antialias=draw(st.booleans()),
        position_offset=draw(st.sampled_from([0.0, 0.1])),
        class_position=draw(st.booleans()),
        rope_unit=draw(st.sampled_from(["image", "patch"])),
        rope_base=draw(st.sampled_from([100.0, 1e4])),
        rope_offset=draw(st.sampled_from([0.0, 1.0])),
        rope_grid=draw(st.sampled_from([None, (2, 3)])),
        width=4 * draw(st.integers(2, 4)) if position == "sincos" else draw(st.integers(2, 16)),
        depth=draw(st.integers(1, 3)),
        heads=draw(st.integers(1, 3)),
        head_width=4 * draw(st.integers(1, 2)) if "rotary" in position else draw(st.integers(2, 8)),
        mlp_width=draw(st.integers(1, 16)),
        mlp=draw(st.sampled_from(["gelu", "gelu_tanh", "quick_gelu", "swiglu"])),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        layer_scale=draw(st.sampled_from([None, 1e-5, 1.0])),
        norm=draw(st.sampled_from(["layer", "rms"])),
        sub_norm=draw(st.sampled_from(["none", "mlp", "all"])),
        norm_eps=draw(st.sampled_from([1e-6, 1e-5])),
        pooling=pooling,
        pool_heads=draw(st.sampled_from([0, 1])),
        pool_mlp_width=draw(st.integers(0, 9)),
        final_norm="tokens"
        if distillation or pooling == "cls_mean"
        else draw(st.sampled_from(["tokens", "pooled", "none"])),
        head_hidden=draw(st.integers(0, 5)) if num_classes and not distillation else 0,
        num_classes=num_classes,
        init=draw(st.sampled_from(["normal", "xavier"])),
        dropout=draw(st.sampled_from([0.0, 0.2])),
        attention_dropout=draw(st.sampled_from([0.0, 0.2])),
        drop_path=draw(st.sampled_from([0.0, 0.2])),
    )
    return ViTConfig(**{**values, **fixed})


@given(configs(), st.integers(0, 2**31))
def test_every_config_builds_and_trains_with_finite_gradients_in_every_parameter(config, seed):
    torch.manual_seed(seed)
    model = create_model(config, seed=seed).train()
    output = model(random_images(config, batch=3, seed=seed))
    assert output.shape == (3, config.num_classes or config.head_hidden or config.pooled_width)
    (output * torch.randn(output.shape)).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@given(configs(), st.integers(0, 2**31))
def test_every_config_survives_json(config, seed):
    again = ViTConfig.from_json(config.to_json())
    assert again == config
    one, other = (create_model(c, seed=seed).eval() for c in (config, again))
    images = random_images(config, seed=seed)
    assert torch.equal(one(images), other(images))


@given(configs(), st.permutations(range(4)), st.integers(0, 2**31))
@torch.no_grad()
def test_permuting_the_batch_permutes_the_output_and_an_image_alone_gives_the_same(config, order, seed):
    model = create_model(config, seed=seed).eval().double()  # a norm over two numbers can enlarge rounding a lot
    images = random_images(config, batch=4, seed=seed).double()
    output = model(images)
    assert_close(model(images[order]), output[order], rtol=1e-6, atol=1e-8)
    assert_close(model(images[order[0]][None]), output[order[0]][None], rtol=1e-6, atol=1e-8)


@given(configs(), st.integers(1, 5), st.integers(1, 5))
@torch.no_grad()
def test_any_size_that_the_patch_divides_works(config, rows, columns):
    model = create_model(config, seed=0).eval()
    images = random_images(config, size=(rows * config.patch_size[0], columns * config.patch_size[1]))
    tokens = model.forward_features(images)
    assert tokens.shape == (2, config.prefix + rows * columns, config.width)
    assert model(images).isfinite().all()
    maps = model.attention(images, layers=[-1])
    assert_close(maps.sum(dim=-1), torch.ones(maps.shape[:-1]))


@given(configs(), st.integers(1, 20), st.integers(1, 20))
def test_any_other_size_is_refused_for_input_and_for_config(config, height, width):
    model = create_model(config, seed=0)
    divides = height % config.patch_size[0] == 0 and width % config.patch_size[1] == 0
    if divides:
        assert config.replace(image_size=(height, width)).image_size == (height, width)
        assert model(random_images(config, size=(height, width))).isfinite().all()
        return
    with pytest.raises(InputError, match="is not a multiple of the patch"):
        model(random_images(config, size=(height, width)))
    with pytest.raises(ConfigError, match="is not a multiple of the patch"):
        config.replace(image_size=(height, width))


@given(configs(), st.integers(0, 2**31))
@torch.no_grad()
def test_conv_and_linear_patches_give_the_same_model(config, seed):
    conv, linear = (create_model(config.replace(patch_embed=kind), seed=seed).eval() for kind in ("conv", "linear"))
    images = random_images(config, seed=seed)
    assert_close(conv(images), linear(images), rtol=1e-4, atol=1e-5)
