"""Maps that are read beside the fused kernel, live against the attentions that transformers computes eagerly."""

import torch
from torch.testing import assert_close

from tests.parity.test_transformers import OURS, plain_mlp, vit_config
from vitkit.explain import attention_maps
from vitkit.model import ViT, ViTConfig


def test_class_attention_of_all_layers_and_heads_equals_the_eager_one_of_transformers(transformers):
    torch.manual_seed(0)
    theirs = transformers.ViTForImageClassification(vit_config(transformers, attn_implementation="eager")).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    ours = ViT(ViTConfig(**{**OURS, "mlp_width": 96, "num_classes": 7, "norm_eps": 1e-12})).eval()
    ours.load_state_dict(plain_mlp(theirs.state_dict()))
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        eager = theirs(images, output_attentions=True).attentions
    found = attention_maps(ours, images)
    assert len(eager) == len(found) == 3
    for layer, weights in zip(found, eager, strict=True):
        assert_close(layer.flatten(2), weights[:, :, 0, 1:], rtol=0, atol=1e-5)
        assert weights[:, :, 0].amax() > 0.1  # far from even: 1/17
