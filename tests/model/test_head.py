import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from vitkit.errors import ConfigError
from vitkit.model.head import AttentionPool, Pool, PreLogits

from .small import random_images, small_config, small_model


def tokens(count=9):
    return torch.randn(2, count, 16, generator=torch.Generator().manual_seed(0))


def test_cls_pooling_takes_the_first_token():
    assert_close(Pool(small_config(registers=2))(tokens()), tokens()[:, 0])


@pytest.mark.parametrize(
    ("class_token", "registers", "prefix"), [(True, 2, 3), (True, 0, 1), (False, 2, 2), (False, 0, 0)]
)
def test_mean_pooling_excludes_the_prefix_and_mean_all_includes_it(class_token, registers, prefix):
    options = dict(class_token=class_token, registers=registers)
    assert_close(Pool(small_config(pooling="mean", **options))(tokens()), tokens()[:, prefix:].mean(dim=1))
    assert_close(Pool(small_config(pooling="mean_all", **options))(tokens()), tokens().mean(dim=1))


@torch.no_grad()
def test_attention_pooling_equals_its_definition_head_by_head():
    model = small_model(pooling="attention", head_width=12)
    pool, x = model.attn_pool, tokens()
    query, (keys, values) = pool.q(pool.latent)[0, 0], pool.kv(x).chunk(2, dim=-1)
    heads = []
    for head in range(2):
        part = slice(12 * head, 12 * head + 12)
        weights = (keys[..., part] @ query[part] / math.sqrt(12)).softmax(dim=1)
        heads.append((weights[..., None] * values[..., part]).sum(dim=1))
    pooled = pool.proj(torch.cat(heads, dim=1))
    normed = F.layer_norm(pooled, (16,), pool.norm.weight, pool.norm.bias, 1e-6)
    expected = pooled + pool.mlp.fc2(F.gelu(pool.mlp.fc1(normed)))
    assert_close(pool(x), expected, rtol=1e-4, atol=1e-5)


def test_attention_pooling_is_permutation_invariant():
    pool, order = small_model(pooling="attention").attn_pool, torch.randperm(9)
    assert isinstance(pool, AttentionPool)
    assert_close(pool(tokens()), pool(tokens()[:, order]))


def test_hidden_layer_is_a_tanh_of_a_linear_layer():
    layer, x = PreLogits(16, 7), 20 * tokens()[:, 0]
    assert_close(layer(x), torch.tanh(x @ layer.fc.weight.T + layer.fc.bias))
    assert layer(x).abs().max() <= 1


@torch.no_grad()
def test_reset_classifier_gives_zero_logits_and_keeps_the_features():
    model = small_model()
    images = random_images(model)
    features = model.forward_features(images)
    model.reset_classifier(11)
    assert model.config.num_classes == 11
    assert_close(model(images), torch.zeros(2, 11), rtol=0, atol=0)
    assert_close(model.forward_features(images), features, rtol=0, atol=0)


def test_a_hidden_head_is_replaced_by_a_linear_one_and_back():
    model = small_model(head_hidden=7)
    assert (model.pre_logits.fc.out_features, model.head.in_features) == (7, 7)
    model.reset_classifier(3)
    assert isinstance(model.pre_logits, nn.Identity)
    assert (model.config.head_hidden, model.head.in_features, model.head.out_features) == (0, 16, 3)
    model.reset_classifier(4, hidden=9)
    assert (model.config.head_hidden, model.pre_logits.fc.out_features, model.head.in_features) == (9, 9, 9)
    assert model.pre_logits.fc.weight.std() > 0.01  # only the classifier is zero: else nothing would ever learn
    assert model(random_images(model)).shape == (2, 4)


def test_a_new_head_receives_gradients_at_the_first_step():
    for hidden in (0, 9):
        model = small_model()
        model.reset_classifier(4, hidden=hidden)
        F.cross_entropy(model(random_images(model)), torch.tensor([1, 2])).backward()
        assert model.head.weight.grad.abs().max() > 0


def test_reset_classifier_to_no_classes_returns_pooled_features():
    model = small_model()
    images = random_images(model)
    model.reset_classifier(0)
    assert_close(model(images), model.forward_features(images)[:, 0])


def test_reset_classifier_keeps_dtype_and_device():
    model = small_model().bfloat16()
    model.reset_classifier(4, hidden=9)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_an_impossible_head_leaves_the_model_as_it_was():
    model = small_model()
    with pytest.raises(ConfigError, match="head_hidden=9 with num_classes=0"):
        model.reset_classifier(0, hidden=9)
    assert model.config.num_classes == model.head.out_features == 5
