"""Relevance maps; test_exactness compares them with the published formulas."""

import pytest
import torch

from tests.model.small import random_images, small_model
from vitkit.explanation.relevance import attribution, gradient, gradient_memory, rollout


@torch.no_grad()
def test_rollout_stops_at_the_given_layer():
    model = small_model()
    images = random_images(model)
    first = model.attention(images, layers=[0])[0].mean(dim=1)
    expected = (first[:, 0, 1:] / 2).view(-1, 4, 3)  # half the attention of the class token; the identity adds none
    torch.testing.assert_close(rollout(model, images, layer=0)[0], expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(rollout(model, images, layer=-1)[0], rollout(model, images)[0])


@pytest.mark.parametrize("method", [gradient, attribution])
def test_the_default_class_is_the_predicted_one_and_no_gradients_are_kept(method):
    model = small_model()
    images = random_images(model)
    maps, logits = method(model, images)
    torch.testing.assert_close(maps, method(model, images, logits.argmax(dim=1))[0])
    assert not maps.requires_grad
    assert not logits.requires_grad
    assert all(p.grad is None for p in model.parameters())


def test_the_memory_estimate_covers_attention_weights_and_their_gradients_and_grows_with_their_number():
    model = small_model()
    c = model.config
    height, width = 20 * c.patch_size[0], 20 * c.patch_size[1]
    weights = 4 * c.depth * c.heads * (400 + c.prefix) ** 2
    assert 2 * weights < gradient_memory(model, (height, width))
    assert gradient_memory(model, (2 * height, 2 * width)) > 8 * gradient_memory(model, (height, width))
