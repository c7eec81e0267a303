"""Mistakes of well-known tutorials. Each check passes on our model and fails once the mistake is inserted."""

import contextlib
import copy
import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from vitkit.errors import InputError
from vitkit.model import ViT, create_model, vit
from vitkit.model import attention as attention_module
from vitkit.model import patch_embed as patch_module
from vitkit.model.attention import Attention
from vitkit.model.block import Block
from vitkit.model.head import Pool, PreLogits
from vitkit.model.init import init_weights
from vitkit.model.patch_embed import PatchEmbed

from .small import random_images, small_config, small_model

# --- the checks ---


@torch.no_grad()
def check_patches_are_squares_of_the_image():
    conv, linear = small_model(), small_model(patch_embed="linear")
    images = random_images(conv)
    assert_close(conv.patch_embed(images), linear.patch_embed(images), rtol=1e-4, atol=1e-5)
    square = images[:, :, 4:8, 8:16].flatten(1)  # row 1, column 1 of a grid of 4 × 3
    proj = conv.patch_embed.proj
    by_hand = square @ proj.weight.flatten(1).T + proj.bias
    for model in (conv, linear):
        assert_close(model.patch_embed(images)[:, 4], by_hand, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def check_scores_are_scaled_by_the_head_width():
    for heads, head_width in [(2, 8), (2, 12), (3, 4)]:
        model = small_model(heads=heads, head_width=head_width)
        layer, x = model.blocks[0].attn, torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
        q, k, v = (part.unflatten(-1, (heads, head_width)).transpose(1, 2) for part in layer.qkv(x).chunk(3, dim=-1))
        weights = torch.exp(q @ k.mT / math.sqrt(head_width))
        weights /= weights.sum(dim=-1, keepdim=True)
        captured = []
        output = layer(x, None, lambda q, k: captured.append(attention_module.attention_weights(q, k)))  # noqa: B023 # called at once
        assert_close(captured[0], weights, rtol=1e-4, atol=1e-5)
        assert_close(output, layer.proj((weights @ v).transpose(1, 2).flatten(2)), rtol=1e-4, atol=1e-5)


def check_images_of_a_batch_are_apart():
    check_images_are_apart("mean")


def check_the_class_token_sees_its_image():
    check_images_are_apart("cls")


@torch.no_grad()
def check_images_are_apart(pooling):
    model = small_model(pooling=pooling)
    images, order = random_images(model, batch=4), torch.tensor([2, 0, 3, 1])
    logits = model(images)
    assert_close(model(images[order]), logits[order], rtol=1e-4, atol=1e-5)
    # Attention across the batch passes the line above, because it is permutation-equivariant as well. Patch tokens then
    # attend to other images, and class tokens to equal class tokens: all images get the same logits.
    assert_close(model(images[:1]), logits[:1], rtol=1e-4, atol=1e-5)
    assert (logits[0] - logits[1]).abs().max() > 1e-2


@torch.no_grad()
def check_branches_read_their_normalised_input():
    block, z = small_model().blocks[0], 3 * torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
    norm1, norm2 = (F.layer_norm(z, (16,), n.weight, n.bias, n.eps) for n in (block.norm1, block.norm2))
    with_attention, with_mlp = copy.deepcopy(block), copy.deepcopy(block)
    for silenced in (with_attention.mlp.fc2, with_mlp.attn.proj):
        silenced.weight.zero_()
        silenced.bias.zero_()
    assert_close(with_attention(z) - z, block.attn(norm1), rtol=1e-4, atol=1e-4)
    assert_close(with_mlp(z) - z, block.mlp(norm2), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def check_the_last_norm_is_there():
    for final_norm, pooling in [("tokens", "cls"), ("tokens", "mean_all"), ("pooled", "mean")]:
        model = small_model(final_norm=final_norm, pooling=pooling, num_classes=0)
        images = random_images(model)
        x = model.forward_intermediates(images, [-1])[0]
        if final_norm == "tokens":
            expected = F.layer_norm(x, (16,), model.norm.weight, model.norm.bias, 1e-6)
            assert_close(model.forward_features(images), expected)
        else:
            expected = F.layer_norm(x[:, 1:].mean(dim=1), (16,), model.fc_norm.weight, model.fc_norm.bias, 1e-6)
            assert_close(model(images), expected)


@torch.no_grad()
def check_the_classifier_sees_the_pooled_token_only():
    model = small_model(registers=2)
    images = random_images(model)
    features = model.forward_features(images)
    logits = model(images)
    assert logits.shape == (2, 5)
    assert_close(logits, features[:, 0] @ model.head.weight.T + model.head.bias)


@torch.no_grad()
def check_the_hidden_layer_is_not_linear():
    model = small_model(head_hidden=7)
    images = random_images(model)
    pooled = model.forward_features(images)[:, 0]
    hidden = torch.tanh(pooled @ model.pre_logits.fc.weight.T + model.pre_logits.fc.bias)
    assert_close(model(images), hidden @ model.head.weight.T + model.head.bias)


@torch.no_grad()
def check_positions_follow_the_grid():
    """A resampled table of row and column coordinates still rises evenly from border to border."""
    for own, other in [((4, 4), (2, 2)), ((4, 4), (3, 4)), ((4, 9), (2, 3)), ((2, 6), (6, 2)), ((6, 6), (4, 9))]:
        model = create_model(
            small_config(image_size=own, patch_size=1, class_position=False, position_resample="bilinear")
        )
        rows, columns = torch.meshgrid(*(torch.arange(g) + 0.5 for g in own), indexing="ij")
        model.pos_embed.zero_()
        model.pos_embed[0, :, 0], model.pos_embed[0, :, 1] = rows.flatten() / own[0], columns.flatten() / own[1]
        images = torch.zeros(1, 3, *other)
        moved = (model.embed(images)[0][:, 1:] - model.patch_embed(images))[0].unflatten(0, other)
        for axis in (0, 1):
            along = moved[..., axis]
            assert_close(along.mean(), torch.tensor(0.5))
            assert_close(along + along.flip(axis), torch.ones(other))  # even about the middle
            assert_close(along, along.mean(dim=1 - axis, keepdim=True).expand(other))  # no change across
            assert along.diff(dim=axis).min() >= 0
            assert along.max() - along.min() > 0.3


@torch.no_grad()
def check_sizes_that_the_patch_does_not_divide_are_refused():
    model = small_model()
    taken = []
    for size in [(17, 24), (16, 31), (18, 26)]:
        with contextlib.suppress(InputError):
            model(random_images(model, size=size))
            taken.append(size)
    assert not taken


def check_blocks_start_with_weights_of_their_own():
    blocks = create_model(small_config(depth=4), seed=0).blocks
    for one, other in itertools.combinations(blocks, 2):
        for name in ("attn.qkv.weight", "attn.proj.weight", "mlp.fc1.weight", "mlp.fc2.weight"):
            assert not torch.equal(one.state_dict()[name], other.state_dict()[name])


# --- the mistakes ---


def cut_by_reshape(images, patch):
    b, c, h, w = images.shape
    return images.reshape(b, (h // patch[0]) * (w // patch[1]), patch[0] * patch[1] * c)


def channels_reshaped_into_tokens(self, images):
    if self.as_linear:
        return F.linear(patch_module.patchify(images, self.patch), self.proj.weight.flatten(1), self.proj.bias)
    features = self.proj(images)
    return features.reshape(features.shape[0], -1, features.shape[1])


def fused_scaled_by_the_model_width(q, k, v, **kwargs):
    return (q @ k.mT / math.sqrt(16)).softmax(dim=-1) @ v


def plain_scaled_by_the_model_width(q, k):
    return (q @ k.mT / math.sqrt(16)).softmax(dim=-1)


def sequence_first(forward):
    """`nn.MultiheadAttention` without batch_first treats the first axis as the sequence."""
    return lambda self, x, *rest: forward(self, x.transpose(0, 1), *rest).transpose(0, 1)


def attention_of_the_raw_input(self, x, rope=None):
    x = x + self.attn(x, rope)
    return x + self.mlp(self.norm2(x))


def mlp_of_the_raw_input(self, x, rope=None):
    x = x + self.attn(self.norm1(x), rope)
    return x + self.mlp(x)


def features_without_norm(self, images, capture=None):
    return self.forward_intermediates(images, [-1])[0]


def forward_without_pooled_norm(self, images):
    return self.head(self.attn_pool(self.forward_features(images)))


def head_on_all_tokens(self, images):
    return self.head(self.forward_features(images))


def table_sliced(table, old, new, mode, *options):
    return table[: new[0] * new[1]]


def table_taken_for_a_square(table, old, new, mode, *options):
    side = math.isqrt(len(table))
    if side * side != len(table):
        return table_sliced(table, old, new, mode)
    picture = table.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    return F.interpolate(picture, size=new, mode=mode, antialias=True).permute(0, 2, 3, 1).flatten(0, 2)


def table_kept_for_the_same_count(resample):
    return lambda table, old, new, *how: table if len(table) == new[0] * new[1] else resample(table, old, new, *how)


def one_block_copied(model, *args, **kwargs):
    init_weights(model, *args, **kwargs)
    for block in model.blocks[1:]:
        block.load_state_dict(model.blocks[0].state_dict())


# mistake → (where it is inserted, attribute, replacement, the check that must fail)
BUGS = {
    "reshape without permute": (patch_module, "patchify", cut_by_reshape, check_patches_are_squares_of_the_image),
    "channels reshaped into tokens": (
        PatchEmbed,
        "forward",
        channels_reshaped_into_tokens,
        check_patches_are_squares_of_the_image,
    ),
    "scaled by the model width": (
        F,
        "scaled_dot_product_attention",
        fused_scaled_by_the_model_width,
        check_scores_are_scaled_by_the_head_width,
    ),
    "maps scaled by the model width": (
        attention_module,
        "attention_weights",
        plain_scaled_by_the_model_width,
        check_scores_are_scaled_by_the_head_width,
    ),
    "attention across the batch": (
        Attention,
        "forward",
        sequence_first(Attention.forward),
        check_images_of_a_batch_are_apart,
    ),
    "class tokens across the batch": (
        Attention,
        "forward",
        sequence_first(Attention.forward),
        check_the_class_token_sees_its_image,
    ),
    "attention of the raw input": (
        Block,
        "forward",
        attention_of_the_raw_input,
        check_branches_read_their_normalised_input,
    ),
    "MLP of the raw input": (Block, "forward", mlp_of_the_raw_input, check_branches_read_their_normalised_input),
    "no final norm": (ViT, "forward_features", features_without_norm, check_the_last_norm_is_there),
    "no norm after pooling": (ViT, "forward", forward_without_pooled_norm, check_the_last_norm_is_there),
    "a head on all tokens": (ViT, "forward", head_on_all_tokens, check_the_classifier_sees_the_pooled_token_only),
    "a head on the mean of all tokens": (
        Pool,
        "forward",
        lambda self, tokens, capture=None: tokens.mean(dim=1),
        check_the_classifier_sees_the_pooled_token_only,
    ),
    "hidden layer without activation": (
        PreLogits,
        "forward",
        lambda self, x: self.fc(x),
        check_the_hidden_layer_is_not_linear,
    ),
    "table sliced": (vit, "resample_table", table_sliced, check_positions_follow_the_grid),
    "table taken for a square": (vit, "resample_table", table_taken_for_a_square, check_positions_follow_the_grid),
    "table kept for the same count": (
        vit,
        "resample_table",
        table_kept_for_the_same_count(vit.resample_table),
        check_positions_follow_the_grid,
    ),
    "any size accepted": (
        vit,
        "check_images",
        lambda images, config, dtype: None,
        check_sizes_that_the_patch_does_not_divide_are_refused,
    ),
    "blocks copied from one": (vit, "init_weights", one_block_copied, check_blocks_start_with_weights_of_their_own),
}

CHECKS: list[Callable[[], None]] = list(dict.fromkeys(check for *_, check in BUGS.values()))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_model_passes_the_check(check):
    check()


@pytest.mark.parametrize(("place", "name", "mistake", "check"), BUGS.values(), ids=BUGS)
def test_the_mistake_fails_the_check(monkeypatch, place, name, mistake, check):
    assert isinstance(place, type(torch)) or issubclass(place, nn.Module)
    monkeypatch.setattr(place, name, mistake)
    with pytest.raises(AssertionError):
        check()
