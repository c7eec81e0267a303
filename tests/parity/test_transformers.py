"""Hugging Face models: their query, key and value layers, concatenated, are our qkv."""

import re

import pytest
import torch
import torch.nn.functional as F

from vitkit.model import ViTConfig, create_model

from .compare import assert_near, assert_same_numbers, loaded, random_images, randomise

SIZE = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, image_size=32, patch_size=8)
OURS = dict(width=48, depth=3, heads=4, head_width=12, image_size=32, patch_size=8)

# their names → ours, tried in this order; q, k, v and gate, value are concatenated afterwards
NAMES = [
    (r"^(vit|dinov2_with_registers)\.", ""),
    (r"^embeddings\.cls_token", "cls_token"),
    (r"^embeddings\.register_tokens", "reg_token"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.patch_embeddings(\.projection)?\.", "patch_embed.proj."),
    (r"^(encoder\.layer|model\.layer|layers)\.", "blocks."),
    (r"\.attention\.(q|k|v)_proj\.", r".attn.qkv.\1."),
    (r"\.attention\.o_proj\.", ".attn.proj."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.layer_scale(\d)\.lambda1", r".ls\1.gamma"),
    (r"\.mlp\.gate_proj\.", ".mlp.fc1.gate."),
    (r"\.mlp\.up_proj\.", ".mlp.fc1.value."),
    (r"\.mlp\.down_proj\.", ".mlp.fc2."),
    (r"^layernorm\.", "norm."),
    (r"^pooler\.dense\.", "pre_logits.fc."),
    (r"^classifier\.", "head."),
]


def convert(state, gated=True):
    renamed = {}
    for name, tensor in state.items():
        if name.endswith("mask_token"):
            continue
        for pattern, ours in NAMES if gated else [*NAMES, (r"\.mlp\.fc1\.value\.", ".mlp.fc1.")]:
            name = re.sub(pattern, ours, name)
        renamed[name] = tensor
    for parts in (("q", "k", "v"), ("gate", "value")):
        for name in [name for name in renamed if f".{parts[0]}." in name]:
            together = [renamed.pop(name.replace(f".{parts[0]}.", f".{part}.")) for part in parts]
            renamed[name.replace(f".{parts[0]}.", ".")] = torch.cat(together)
    return renamed


def plain_mlp(state):
    return convert(state, gated=False)


def vit_config(transformers, **options):
    return transformers.ViTConfig(**{**SIZE, "intermediate_size": 96, "num_labels": 7, **options})


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {}),
        (dict(layer_norm_eps=1e-5), dict(norm_eps=1e-5)),
        (dict(qkv_bias=False), dict(qkv_bias=False)),
        (dict(image_size=(32, 48)), dict(image_size=(32, 48))),
        (dict(num_channels=1, hidden_act="gelu_pytorch_tanh"), dict(in_channels=1, mlp="gelu_tanh")),
    ],
    ids=["plain", "eps", "no qkv bias", "non-square", "one channel, tanh gelu"],
)
def test_vit_gives_the_same_logits_and_gradients(transformers, theirs, ours):
    model = randomise(transformers.ViTForImageClassification(vit_config(transformers, **theirs)))
    config = ViTConfig(**{**OURS, "mlp_width": 96, "num_classes": 7, "norm_eps": 1e-12, **ours})
    images = random_images(config.image_size, channels=config.in_channels)
    assert_same_numbers(config, model, convert, images, lambda x: model(x).logits)


def test_vit_pooler_is_our_hidden_layer(transformers):
    model = randomise(transformers.ViTModel(vit_config(transformers)))
    config = ViTConfig(**OURS, mlp_width=96, norm_eps=1e-12, head_hidden=48, num_classes=1)

    def with_head(state):  # our classifier follows the hidden layer; their bare model has none
        like = state["pooler.dense.weight"]
        return {**convert(state), "head.weight": like.new_zeros(1, 48), "head.bias": like.new_zeros(1)}

    assert_same_numbers(
        config,
        model,
        with_head,
        random_images((32, 32)),
        lambda x: model(x).pooler_output,
        lambda ours, x: ours.pre_logits(ours.attn_pool(ours.forward_features(x))),
    )


@pytest.mark.parametrize("size", [(64, 64), (16, 16), (32, 96)], ids=["larger", "smaller", "non-square"])
@torch.no_grad()
def test_vit_at_another_size_differs_only_by_position_resampling(transformers, size):
    """transformers interpolates without antialiasing and with a cubic of a = -0.75; we and timm use it, with a = -0.5.

    So other sizes cannot agree. With the table resampled as in transformers, everything else agrees.
    """
    model = randomise(transformers.ViTForImageClassification(vit_config(transformers)))
    state, grid = convert(model.state_dict()), (size[0] // 8, size[1] // 8)
    config = ViTConfig(**OURS, mlp_width=96, num_classes=7, norm_eps=1e-12)
    images = random_images(size)
    expected = model(images, interpolate_pos_encoding=True).logits
    picture = state["pos_embed"][:, 1:].reshape(1, 4, 4, 48).permute(0, 3, 1, 2)
    resized = F.interpolate(picture, size=grid, mode="bicubic", align_corners=False).flatten(2).mT
    table = torch.cat([state["pos_embed"][:, :1], resized], dim=1)
    assert_near(loaded(config.replace(image_size=size), {**state, "pos_embed": table})(images), expected)
    with pytest.raises(AssertionError, match="output: differs by"):
        assert_near(loaded(config, state)(images), expected)


def assert_same_tokens(config, model, convert, size):
    images = random_images(size)
    theirs, ours = lambda x: model(x).last_hidden_state, lambda ours, x: ours.forward_features(x)
    assert_same_numbers(config, model, convert, images, theirs, ours)


def dinov2(transformers, **options):
    config = transformers.Dinov2WithRegistersConfig(**{**SIZE, "mlp_ratio": 2, "num_register_tokens": 3, **options})
    return randomise(transformers.Dinov2WithRegistersModel(config))


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (16, 16), (24, 80)])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [({}, dict(mlp_width=96)), (dict(use_swiglu_ffn=True), dict(mlp="swiglu", mlp_width=64))],
    ids=["gelu", "swiglu"],
)
def test_dinov2_with_registers_gives_the_same_tokens_and_gradients_at_any_size(transformers, theirs, ours, size):
    model = dinov2(transformers, **theirs)
    config = ViTConfig(**OURS, **ours, registers=3, layer_scale=1.0, num_classes=0)
    assert_same_tokens(config, model, convert, size)
    with torch.no_grad():
        ours = loaded(config, convert(model.state_dict()))
        assert_near(ours(random_images(size)), model(random_images(size)).pooler_output)


def dinov3(transformers, **options):
    sizes = {**SIZE, "intermediate_size": 96, "num_register_tokens": 3}
    return randomise(transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**{**sizes, **options})))


@pytest.mark.parametrize("size", [(32, 32), (64, 64), (24, 80)])
@pytest.mark.parametrize("registers", [0, 3])
def test_dinov3_gives_the_same_tokens_and_gradients_with_rotary_positions(transformers, registers, size):
    model = dinov3(transformers, key_bias=True, num_register_tokens=registers)
    config = ViTConfig(
        **OURS, mlp_width=96, registers=registers, layer_scale=1.0, position="rotary", norm_eps=1e-5, num_classes=0
    )

    def without_empty(state):
        return {k: v for k, v in plain_mlp(state).items() if v.numel()}

    assert_same_tokens(config, model, without_empty, size)


def keys_without_bias(state):
    """Released DINOv3 models have no key bias: ours is zero."""
    for name in [name for name in state if name.endswith("q_proj.bias")]:
        state.setdefault(name.replace("q_proj", "k_proj"), torch.zeros_like(state[name]))
    return state


@pytest.mark.parametrize("gated", [False, True])
@torch.no_grad()
def test_dinov3_as_released_has_no_key_bias_which_is_a_zero_in_ours(transformers, gated):
    model = dinov3(transformers, use_gated_mlp=gated, hidden_act="silu" if gated else "gelu")
    assert not any(name.endswith("k_proj.bias") for name in model.state_dict())
    config = ViTConfig(
        **OURS, mlp_width=96, mlp="swiglu" if gated else "gelu", registers=3, layer_scale=1.0, position="rotary",
        norm_eps=1e-5, num_classes=0,
    )  # fmt: skip
    ours = loaded(config, convert(keys_without_bias(model.state_dict()), gated))
    images = random_images((24, 80))
    assert_near(ours.forward_features(images), model(images).last_hidden_state)


@torch.no_grad()
def test_attention_maps_equal_the_eager_ones_of_every_model(transformers):
    images = random_images((32, 32))
    common = dict(**OURS, mlp_width=96, num_classes=0)
    pairs = [
        (
            transformers.ViTModel(vit_config(transformers), add_pooling_layer=False),
            convert,
            ViTConfig(**common, norm_eps=1e-12),
        ),
        (dinov2(transformers), convert, ViTConfig(**common, registers=3, layer_scale=1.0)),
        (
            dinov3(transformers),
            lambda state: plain_mlp(keys_without_bias(state)),
            ViTConfig(**common, registers=3, layer_scale=1.0, position="rotary", norm_eps=1e-5),
        ),
    ]
    for model, mapping, config in pairs:
        model = randomise(model)
        model.set_attn_implementation("eager")
        expected = torch.stack(model(images, output_attentions=True).attentions)
        ours = loaded(config, mapping(model.state_dict()))
        maps = ours.attention(images)
        assert_near(maps, expected, type(model).__name__)
        assert_near(ours.attention(images, [-1], [2], [0]), expected[-1:, :, 2:3, :1], type(model).__name__)


def test_base_sizes_of_the_default_configs_agree(transformers):
    theirs, ours = transformers.ViTConfig(), create_model("vit_base_patch16_224", device="meta").config
    assert (theirs.hidden_size, theirs.num_hidden_layers, theirs.num_attention_heads, theirs.intermediate_size) == (
        ours.width,
        ours.depth,
        ours.heads,
        ours.mlp_width,
    )
