"""Maps equal plain references that are written from the formulas and share no code with the package."""

import math

import pytest
import torch
from torch.testing import assert_close

from tests.model.small import OPTIONS, random_images, small_model
from vitkit.explanation import attention_maps, explain
from vitkit.explanation.capture import differentiable_attention

CLASSIFIERS = {name: o for name, o in OPTIONS.items() if o.get("num_classes") != 0}
SIZES = {"own size": (16, 24), "other size": (8, 40)}


def norm(x, layer):
    if isinstance(layer, torch.nn.RMSNorm):
        return x / (x.square().mean(-1, keepdim=True) + layer.eps).sqrt() * layer.weight
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    return (x - mean) / (variance + layer.eps).sqrt() * layer.weight + layer.bias


def turned(x, rope):
    """Each pair (xᵢ, xᵢ₊ₑ⸝₂) of a patch token as a complex number, times a unit one."""
    if rope is None:
        return x
    cos, sin = (part[:, : part.shape[1] // 2] for part in rope)
    half, prefix = x.shape[-1] // 2, x.shape[-2] - cos.shape[0]
    pairs = torch.complex(x[..., prefix:, :half].contiguous(), x[..., prefix:, half:].contiguous())
    pairs = pairs * torch.complex(cos, sin)
    return torch.cat([x[..., :prefix, :], torch.cat([pairs.real, pairs.imag], dim=-1)], dim=-2)


def reference(model, images):
    """softmax(QKᵀ/√e) of every block, head by head, and logits that depend on them."""
    c = model.config
    x, rope = model.embed(images)
    found = []
    for block in model.blocks:
        normed = norm(x, block.norm1)
        every = normed @ block.attn.qkv.weight.T + (0 if block.attn.qkv.bias is None else block.attn.qkv.bias)
        every = every.view(*x.shape[:2], 3, c.heads, c.head_width)
        weights, mixed = [], []
        for head in range(c.heads):
            q, k = every[:, :, 0, head], every[:, :, 1, head]
            if c.qk_norm:
                q, k = norm(q, block.attn.q_norm), norm(k, block.attn.k_norm)
            q, k = turned(q, rope), turned(k, rope)
            exponents = torch.exp(q @ k.transpose(1, 2) / math.sqrt(c.head_width))
            weights.append(exponents / exponents.sum(dim=-1, keepdim=True))
        found.append(torch.stack(weights, dim=1))
        for head in range(c.heads):
            mixed.append(found[-1][:, head] @ every[:, :, 2, head])
        x = x + block.ls1(block.attn.proj(block.attn.norm(torch.cat(mixed, dim=-1))))
        x = x + block.ls2(block.mlp(block.norm2(x)))
    tokens = model.norm(x)
    if "attention" in c.pooling:
        pool, heads = model.attn_pool, c.pool_heads or c.heads
        read = tokens[:, c.prefix if c.pooling == "attention_patches" else 0 :]
        q = pool.q(pool.latent).view(heads, -1)
        keys = pool.kv(read).view(*read.shape[:2], 2, heads, -1)
        weights = torch.einsum("he,bthe->bht", q, keys[:, :, 0]) / math.sqrt(q.shape[1])
        found.append(weights.softmax(dim=-1)[:, :, None])
        summed = torch.einsum("bhqt,bthe->bqhe", found[-1], keys[:, :, 1]).flatten(2)
        made = pool.proj(summed)
        pooled = (made + pool.mlp(pool.norm(made)))[:, 0]
    else:
        pooled = model.attn_pool(tokens)
    logits = model.head(model.pre_logits(model.fc_norm(pooled)))
    return found, (logits + model.head_dist(tokens[:, 1])) / 2 if c.distillation else logits


def pooled_rows(model, matrix):
    """(b, t): the mean of the rows that are pooled, as each kind of pooling reads."""
    c = model.config
    if c.pooling == "cls":
        return matrix[:, : 1 + c.distillation].mean(dim=1)
    if c.pooling == "cls_mean":
        return (matrix[:, 0] + matrix[:, c.prefix :].mean(dim=1)) / 2
    return matrix[:, 0 if c.pooling == "mean_all" else c.prefix :].mean(dim=1)


def patches(model, row, size):
    gh = size[0] // model.config.patch_size[0]
    return row[..., model.config.prefix :].unflatten(-1, (gh, -1))


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@torch.no_grad()
def test_maps_of_all_layers_and_heads_equal_the_softmax_of_a_plain_reference(options, size):
    model = small_model(**options)
    images = random_images(model, size=size)
    full, _ = reference(model, images)
    found = attention_maps(model, images)
    for layer in range(model.config.depth):
        for head in range(model.config.heads):
            expected = patches(model, pooled_rows(model, full[layer][:, head]), size)
            assert_close(found[layer, :, head], expected, rtol=0, atol=1e-5)
    assert (found.amax((-1, -2)) - found.amin((-1, -2))).max() > 0.01


@pytest.mark.parametrize("query", [(0, 0), (3, 2), "mean", "class"])
@pytest.mark.parametrize("name", ["plain", "rotary registers", "many"])
@torch.no_grad()
def test_a_chosen_query_equals_its_rows(name, query):
    model = small_model(**OPTIONS[name])
    images = random_images(model)
    full, _ = reference(model, images)
    prefix = model.config.prefix
    rows = {"mean": slice(prefix, None), "class": slice(0, 1)}.get(query) if isinstance(query, str) else None
    if rows is None:
        rows = slice(prefix + query[0] * 3 + query[1], prefix + query[0] * 3 + query[1] + 1)
    expected = patches(model, full[1][:, 1, rows].mean(dim=1), (16, 24))
    found = explain(model, images, "attention", layer=1, head=1, query=query)
    assert_close(torch.from_numpy(found.maps), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_differentiable_weights_sum_to_one_and_the_logits_are_unchanged(options):
    model = small_model(**options)
    images = random_images(model)
    weights, logits = differentiable_attention(model, images)
    expected, _ = reference(model, images)
    assert len(weights) == len(expected) == 3 + ("attention" in model.config.pooling)
    for found, plain in zip(weights, expected, strict=True):
        assert_close(found.sum(dim=-1), torch.ones(found.shape[:-1]))
        assert_close(found, plain, rtol=0, atol=1e-5)
    assert_close(logits, model(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@torch.no_grad()
def test_rollout_is_the_product_of_halved_attention_and_identity(options):
    model = small_model(**options)
    images = random_images(model)
    full, _ = reference(model, images)
    rolled = torch.eye(full[0].shape[-1])
    for weights in full[:3]:
        rolled = (0.5 * weights.mean(dim=1) + 0.5 * torch.eye(weights.shape[-1])) @ rolled
    assert_close(rolled.sum(dim=-1), torch.ones(rolled.shape[:-1]))
    row = (full[3].mean(dim=1) @ rolled[:, -full[3].shape[-1] :])[:, 0] if len(full) > 3 else pooled_rows(model, rolled)
    found = explain(model, images, "rollout")
    assert_close(torch.from_numpy(found.maps), patches(model, row, (16, 24)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["gradient", "attribution"])
@pytest.mark.parametrize("options", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_class_maps_equal_the_published_formulas(options, method):
    """Image by image and class by class, with gradients of the plain reference."""
    model = small_model(**options)
    images = random_images(model)
    targets = [3, 1]
    found = explain(model, images, method, target=targets)
    for i, target in enumerate(targets):
        full, logits = reference(model, images[i : i + 1])
        slopes = torch.autograd.grad(logits[0, target], full)
        relevant = [(s * w).clamp(min=0).mean(dim=1)[0].detach() for s, w in zip(slopes, full, strict=True)]
        eye = torch.eye(relevant[0].shape[-1])
        r = eye
        for a in relevant[:3]:
            scaled = (a + eye) / (a + eye).sum(dim=-1, keepdim=True)
            r = r + a @ r if method == "attribution" else scaled @ r
        row = (relevant[3] @ r[-full[3].shape[-1] :])[0] if len(full) > 3 else pooled_rows(model, r[None])[0]
        expected = patches(model, row, (16, 24))
        assert_close(torch.from_numpy(found.maps[i]), expected, rtol=1e-4, atol=1e-5)
        assert (expected - expected.mean()).abs().max() > 1e-4


def test_a_frozen_model_is_explained_like_any_other_and_no_gradient_stays_behind():
    model = small_model()
    images = random_images(model)
    expected = explain(model, images, "attribution").maps
    assert all(p.grad is None for p in model.parameters())
    with torch.inference_mode():
        assert_close(explain(model, images, "attribution").maps, expected)
    model.requires_grad_(False)
    assert_close(explain(model, images, "attribution").maps, expected)
