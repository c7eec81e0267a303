"""Attention is captured inside the model: exact in every precision, with and without gradients, safe in threads."""

import contextlib
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from einops import rearrange
from torch.testing import assert_close

from tests.model.small import OPTIONS, random_images, small_model
from vitkit.explanation import METHODS, attention_maps, explain
from vitkit.explanation.capture import capture_attention, differentiable_attention
from vitkit.model.attention import attention_weights
from vitkit.model.pos_embed import apply_rope

NAMES = ["plain", "rotary registers", "attention pooling", "many"]
PRECISIONS = ["float32", "bfloat16", "autocast"]


def setup(name, precision):
    """Return a model and images of the precision, and the context in which they run."""
    model = small_model(**OPTIONS[name])
    images = random_images(model)
    if precision == "bfloat16":
        model, images = model.to(torch.bfloat16), images.to(torch.bfloat16)
    scope = torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else contextlib.nullcontext()
    return model, images, scope


def plain_softmax(q, k):
    exponents = torch.exp(q.double() @ k.double().mT / math.sqrt(q.shape[-1]))
    return exponents / exponents.sum(dim=-1, keepdim=True)


@contextlib.contextmanager
def recorded_softmax(model):
    """Collect the plain softmax of every attention layer, computed from the input that the layer received."""
    found = []

    def of_block(layer, inputs, output):
        x, rope = inputs[0], inputs[1]
        q, k, _ = rearrange(layer.qkv(x), "b t (qkv h e) -> qkv b h t e", qkv=3, h=layer.heads)
        found.append(plain_softmax(apply_rope(layer.q_norm(q), rope), apply_rope(layer.k_norm(k), rope)))

    def of_pool(pool, inputs, output):
        q = rearrange(pool.q(pool.latent), "b q (h e) -> b h q e", h=pool.heads)
        k, _ = rearrange(pool.kv(inputs[0]), "b t (kv h e) -> kv b h t e", kv=2, h=pool.heads)
        found.append(plain_softmax(q, k))

    hooks = [block.attn.register_forward_hook(of_block) for block in model.blocks]
    if model.config.pooling == "attention":
        hooks.append(model.attn_pool.register_forward_hook(of_pool))
    yield found
    for hook in hooks:
        hook.remove()


@pytest.mark.parametrize("grad", [False, True], ids=["no grad", "grad"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_captured_weights_equal_the_plain_softmax(name, precision, grad):
    model, images, scope = setup(name, precision)
    with scope, torch.set_grad_enabled(grad), recorded_softmax(model) as expected:
        if grad:
            weights, logits = differentiable_attention(model, images)
        else:
            found, logits = capture_attention(model, images, attention_weights)
            weights = list(found.values())
    assert len(weights) == len(expected) == 3 + (model.config.pooling == "attention")
    for one, plain in zip(weights, expected, strict=True):
        assert one.dtype == torch.float32
        assert_close(one.double(), plain, rtol=0, atol=1e-6)
    with scope, torch.no_grad():
        assert_close(logits, model(images), rtol=0, atol=1e-5 if precision == "float32" else 0.1)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_model_attention_equals_the_plain_softmax_with_gradients_enabled(name, precision):
    model, images, scope = setup(name, precision)
    with scope, recorded_softmax(model) as expected:
        found = model.attention(images)
        assert_close(found.double(), torch.stack(expected), rtol=0, atol=1e-6)
        assert found.requires_grad
        expected.clear()
        one = model.attention(images, layers=[1], heads=[1], queries=[-1, 0])
    assert_close(one[0].double(), expected[1][:, [1]][:, :, [-1, 0]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("precision", ["bfloat16", "autocast"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_explains_in_bf16_close_to_float32(method, name, precision):
    exact_model, exact_images, _ = setup(name, "float32")
    model, images, scope = setup(name, precision)
    target = [1, 2] if METHODS[method].class_specific else None
    expected = explain(exact_model, exact_images, method, target=target).maps
    with scope:
        found = explain(model, images, method, target=target).maps
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_gradients_of_the_logits_reach_every_captured_layer(precision):
    model, images, scope = setup("attention pooling", precision)
    with scope:
        weights, logits = differentiable_attention(model.requires_grad_(False), images)
        slopes = torch.autograd.grad(logits[:, 2].sum(), weights)
    exact = setup("attention pooling", "float32")
    weights, logits = differentiable_attention(exact[0], exact[1])
    for slope, expected in zip(slopes, torch.autograd.grad(logits[:, 2].sum(), weights), strict=True):
        assert expected.abs().max() > 0
        assert_close(slope, expected, rtol=0, atol=0.1 * expected.abs().max().item())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_observing_capture_leaves_the_logits_bit_identical(precision):
    model, images, scope = setup("many", precision)
    seen = []
    with scope:
        assert torch.equal(model(images, lambda q, k: seen.append(q.shape)), model(images))
    assert len(seen) == 4


def test_checkpointed_training_captures_each_layer_once():
    model = small_model().train()
    model.set_grad_checkpointing()
    seen = []
    model(random_images(model), lambda q, k: seen.append(q)).sum().backward()
    assert len(seen) == 3


def test_threads_that_share_a_model_do_not_see_each_other():
    model = small_model()
    batches = [random_images(model, seed=seed) for seed in range(16)]
    alone = [(attention_maps(model, batch), explain(model, batch, "gradient").maps) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        forwards = [pool.submit(lambda: model(batches[0])) for _ in range(16)]
        maps = pool.map(lambda batch: attention_maps(model, batch), batches)
        relevance = pool.map(lambda batch: explain(model, batch, "gradient").maps, batches)
        together = list(zip(maps, relevance, strict=True))
        assert all(torch.equal(done.result(), model(batches[0])) for done in forwards)
    for (one, two), (expected_one, expected_two) in zip(together, alone, strict=True):
        assert_close(one, expected_one, rtol=0, atol=0)
        assert_close(two, expected_two, rtol=0, atol=0)
