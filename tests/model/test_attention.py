import math

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch.testing import assert_close

from vitkit.errors import InputError
from vitkit.model.attention import Attention, attention_weights

from .small import OPTIONS, random_images, small_config, small_model

SIZES = {"own size": (16, 24), "other size": (8, 40)}


def captured_weights(attention, x):
    found = []
    attention(x, None, lambda q, k: found.append(attention_weights(q, k)))
    return found[0]


def inputs_of_blocks(model, images):
    x, rope = model.embed(images)
    return [x, *model.forward_intermediates(images)[:-1]], rope


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@torch.no_grad()
def test_maps_times_values_reproduce_the_fused_forward(options, size):
    model = small_model(**options)
    images = random_images(model, size=size)
    maps = model.attention(images)
    inputs, rope = inputs_of_blocks(model, images)
    assert len(maps) == len(inputs) == model.config.depth
    for block, weights, x in zip(model.blocks, maps, inputs, strict=True):
        normed = block.norm1(x)
        v = rearrange(block.attn.qkv(normed), "b t (qkv h e) -> qkv b h t e", qkv=3, h=model.config.heads)[2]
        by_map = block.attn.proj(block.attn.norm(rearrange(weights @ v, "b h t e -> b t (h e)")))
        assert_close(by_map, block.attn(normed, rope), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@torch.no_grad()
def test_rows_sum_to_one_over_all_tokens(options):
    model = small_model(**options)
    maps = model.attention(random_images(model))
    tokens = model.config.prefix + model.config.grid[0] * model.config.grid[1]
    assert maps.shape == (3, 2, model.config.heads, tokens, tokens)
    assert_close(maps.sum(dim=-1), torch.ones(maps.shape[:-1]))
    assert (maps >= 0).all()
    assert (maps.amax(dim=-1) - maps.amin(dim=-1)).max() > 0.05  # far from uniform


REQUESTS = {
    "one layer": dict(layers=[1]),
    "the last layer": dict(layers=[-1]),
    "layers in another order, one twice": dict(layers=[2, 0, 2]),
    "one head": dict(heads=[1]),
    "heads turned round": dict(heads=(1, 0)),
    "the class token": dict(queries=[0]),
    "the last and the third token": dict(queries=[-1, 2]),
    "a range": dict(queries=range(3, 6)),
    "all three": dict(layers=[1, -1], heads=[-1], queries=[4, 0]),
}


@pytest.mark.parametrize("options", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("name", ["plain", "many"])
@torch.no_grad()
def test_requested_layers_heads_and_queries_equal_slices_of_the_full_maps(name, options):
    model = small_model(**OPTIONS[name])
    images = random_images(model)
    expected = model.attention(images)
    for axis, kind in [(0, "layers"), (2, "heads"), (3, "queries")]:
        if kind in options:
            expected = expected.index_select(axis, torch.tensor([i % expected.shape[axis] for i in options[kind]]))
    assert_close(model.attention(images, **options), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(layers=[3]), "layer 3 is out of range: use 0…2, or -1 for the last"),
        (dict(layers=[0, -4]), "layer -4 is out of range"),
        (dict(layers=[]), "no layer requested: give at least one of 0…2"),
        (dict(heads=[2]), "head 2 is out of range: use 0…1"),
        (dict(heads=[]), "no head requested"),
        (dict(queries=[13]), "query 13 is out of range: use 0…12"),
        (dict(queries=[-14]), "query -14 is out of range"),
    ],
)
def test_indices_out_of_range_are_refused_with_the_valid_range(options, message):
    model = small_model()
    with pytest.raises(InputError) as caught:
        model.attention(random_images(model), **options)
    assert message in str(caught.value)


def test_weights_equal_the_softmax_of_eq_6_computed_entry_by_entry():
    q, k = torch.randn(2, 1, 2, 3, 5, generator=torch.Generator().manual_seed(0))
    weights = attention_weights(q, k)
    for head in range(2):
        for i in range(3):
            scores = [sum(a * b for a, b in zip(q[0, head, i].tolist(), k[0, head, j].tolist(), strict=True))
                      / math.sqrt(5) for j in range(3)]  # fmt: skip
            total = sum(math.exp(s) for s in scores)
            expected = torch.tensor([math.exp(s) / total for s in scores])
            assert_close(weights[0, head, i], expected, rtol=1e-5, atol=1e-6)


def test_weights_stay_float32_under_autocast_and_for_bf16_inputs():
    q, k = torch.randn(2, 1, 2, 3, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = attention_weights(q.float(), k.float())
    with torch.autocast("cpu", torch.bfloat16):
        weights = attention_weights(q, k)
    assert weights.dtype == torch.float32
    assert_close(weights, expected, rtol=0, atol=0)


def test_reading_attention_changes_neither_weights_nor_mode():
    model = small_model()
    images = random_images(model)
    before, logits = {k: v.clone() for k, v in model.state_dict().items()}, model(images)
    model.attention(images)
    assert not model.training
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert_close(model(images), logits, rtol=0, atol=0)


def test_gradients_flow_through_the_maps():
    model = small_model()
    model.attention(random_images(model), layers=[1])[..., 0].sum().backward()
    assert model.blocks[1].attn.qkv.weight.grad.abs().max() > 0
    assert model.blocks[2].attn.qkv.weight.grad is None  # nothing above the requested layer runs


def test_projections_follow_the_head_width_not_the_model_width():
    attention = Attention(small_config(width=16, heads=3, head_width=20))
    assert attention.qkv.weight.shape == (3 * 3 * 20, 16)
    assert attention.proj.weight.shape == (16, 3 * 20)
    assert attention(torch.randn(2, 7, 16)).shape == (2, 7, 16)


def test_without_qkv_bias_there_is_none_to_learn():
    assert "qkv.bias" not in Attention(small_config(qkv_bias=False)).state_dict()
    assert "qkv.bias" in Attention(small_config()).state_dict()


def test_qk_norm_makes_attention_independent_of_query_length():
    x = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
    for qk_norm in (True, False):
        attention = Attention(small_config(qk_norm=qk_norm, qkv_bias=False)).eval()
        before = captured_weights(attention, x)
        with torch.no_grad():
            attention.qkv.weight[:32] *= 30  # queries and keys
        assert torch.allclose(captured_weights(attention, x), before, atol=1e-3) is qk_norm


def test_attention_dropout_acts_only_in_training_and_keeps_the_mean():
    torch.manual_seed(0)
    config = small_config(attention_dropout=0.5)
    attention, x = Attention(config).eval(), torch.randn(1, 7, 16)
    with torch.no_grad():
        expected = attention(x)
        assert_close(attention(x), expected, rtol=0, atol=0)
        attention.train()
        drawn = torch.stack([attention(x) for _ in range(3000)])
    assert drawn.std(dim=0).min() > 0
    scale = expected.abs().max()
    assert (drawn.mean(dim=0) - expected).abs().max() < 0.1 * scale


def test_attention_is_permutation_equivariant():
    attention = Attention(small_config()).eval()
    x, order = torch.randn(2, 7, 16), torch.randperm(7)
    assert_close(attention(x)[:, order], attention(x[:, order]))


def test_the_forward_uses_the_fused_kernel_also_when_attention_is_read(monkeypatch):
    calls = []
    fused = F.scaled_dot_product_attention

    def counted(*args, **kwargs):
        calls.append(args[0].shape)
        return fused(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    model = small_model()
    model(random_images(model))
    assert len(calls) == 3
    model.attention(random_images(model), layers=[-1])
    assert len(calls) == 6
