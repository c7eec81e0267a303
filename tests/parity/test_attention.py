"""Captured attention maps equal the attentions that transformers computes eagerly."""

import torch
from torch.testing import assert_close

from vitkit.explanation import attention_maps
from vitkit.model import ViTConfig

from .compare import loaded, random_images, randomise
from .test_transformers import OURS, plain_mlp, vit_config


def test_class_attention_of_all_layers_and_heads_equals_the_eager_one_of_transformers(transformers):
    theirs = randomise(transformers.ViTForImageClassification(vit_config(transformers, attn_implementation="eager")))
    config = ViTConfig(**OURS, mlp_width=96, num_classes=7, norm_eps=1e-12)
    ours = loaded(config, plain_mlp(theirs.state_dict()))
    images = random_images((32, 32))
    with torch.no_grad():
        eager = theirs(images, output_attentions=True).attentions
    found = attention_maps(ours, images)
    assert len(eager) == len(found) == 3
    for layer, weights in zip(found, eager, strict=True):
        assert_close(layer.flatten(2), weights[:, :, 0, 1:], rtol=0, atol=1e-5)
        assert weights[:, :, 0].amax() > 0.1  # far from uniform, which is 1/17
