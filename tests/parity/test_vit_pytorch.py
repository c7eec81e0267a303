"""vit-pytorch: any head width, patches flattened as (row, column, channel), and two more norms around them."""

import re

import pytest
import torch
from einops import rearrange
from torch import nn

from vitkit.model import ViTConfig
from vitkit.model.pos_embed import sincos_table

from .compare import assert_near, assert_same_numbers, loaded, random_images, randomise

SIZE = dict(image_size=(32, 48), patch_size=(8, 16), num_classes=7, dim=48, depth=3, heads=3, mlp_dim=96)
OURS = dict(
    image_size=(32, 48), patch_size=(8, 16), num_classes=7, width=48, depth=3, heads=3, mlp_width=96, norm_eps=1e-5,
    qkv_bias=False,
)  # fmt: skip

NAMES = [
    (r"^pos_embedding", "pos_embed"),
    (r"^to_patch_embedding\.2\.", "patch_embed.proj."),
    (r"^transformer\.norm\.", "norm."),
    (r"^transformer\.layers\.(\d+)\.0\.norm\.", r"blocks.\1.norm1."),
    (r"^transformer\.layers\.(\d+)\.0\.to_qkv\.", r"blocks.\1.attn.qkv."),
    (r"^transformer\.layers\.(\d+)\.0\.to_out(\.0)?\.", r"blocks.\1.attn.proj."),
    (r"^transformer\.layers\.(\d+)\.1\.net\.0\.", r"blocks.\1.norm2."),
    (r"^transformer\.layers\.(\d+)\.1\.net\.1\.", r"blocks.\1.mlp.fc1."),
    (r"^transformer\.layers\.(\d+)\.1\.net\.[34]\.", r"blocks.\1.mlp.fc2."),
    (r"^(mlp_head|linear_head)\.", "head."),
]


def convert(state):
    renamed = {}
    for name, tensor in state.items():
        for pattern, ours in NAMES:
            name = re.sub(pattern, ours, name)
        renamed[name] = tensor
    weight = renamed["patch_embed.proj.weight"]
    renamed["patch_embed.proj.weight"] = rearrange(weight, "d (p1 p2 c) -> d c p1 p2", p1=8, p2=16)
    for name in ("cls_token", "pos_embed"):
        if name in renamed:
            renamed[name] = renamed[name][None]
    return {name: tensor for name, tensor in renamed.items() if tensor.numel()}


def without_patch_norms(model):
    model.to_patch_embedding[1] = model.to_patch_embedding[3] = nn.Identity()
    return randomise(model)


@pytest.mark.parametrize("head_width", [16, 24, 5])
@pytest.mark.parametrize("pool", ["cls", "mean"])
def test_vit_gives_the_same_logits_and_gradients_at_any_head_width(vit_pytorch, pool, head_width):
    model = without_patch_norms(vit_pytorch.ViT(**SIZE, dim_head=head_width, pool=pool))
    config = ViTConfig(**OURS, head_width=head_width, pooling=pool, class_token=pool == "cls")
    assert_same_numbers(config, model, convert, random_images((32, 48)))


@torch.no_grad()
def test_simple_vit_gives_the_same_logits_with_sincos_positions(vit_pytorch):
    model = without_patch_norms(vit_pytorch.SimpleViT(**SIZE, dim_head=20))
    config = ViTConfig(**OURS, head_width=20, pooling="mean", class_token=False, position="sincos")
    bias = {f"blocks.{i}.attn.proj.bias" for i in range(3)}  # theirs has none

    def with_bias(state):
        return {**convert(state), **{name: torch.zeros(48) for name in bias}}

    ours = loaded(config, with_bias(model.state_dict()))
    images = random_images((32, 48))
    assert_near(ours(images), model(images))


@pytest.mark.parametrize("grid", [(4, 4), (3, 7)])
def test_sincos_positions_equal_those_of_simple_vit(vit_pytorch, grid):
    from vit_pytorch.simple_vit import posemb_sincos_2d

    assert_near(sincos_table(grid, 64), posemb_sincos_2d(*grid, 64))
