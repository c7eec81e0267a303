import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vitkit.model.patch_embed import PatchEmbed, patchify

from .small import random_images, small_config

SHAPES = {
    "square": dict(image_size=(12, 12), patch_size=(4, 4)),
    "rectangular image": dict(image_size=(8, 20), patch_size=(4, 4)),
    "rectangular patch": dict(image_size=(12, 12), patch_size=(6, 3)),
    "one channel": dict(in_channels=1),
    "seven channels": dict(in_channels=7),
    "one pixel": dict(image_size=(3, 5), patch_size=(1, 1)),
    "one patch": dict(image_size=(4, 6), patch_size=(4, 6)),
    "stem": dict(image_size=(16, 32), patch_size=(8, 4), stem=(3, 5)),
}


def pair_of_embeddings(**changes):
    """Return patch embeddings by convolution and by matrix product, with the same random weights."""
    torch.manual_seed(0)
    conv, linear = (PatchEmbed(small_config(**changes, patch_embed=kind)) for kind in ("conv", "linear"))
    linear.load_state_dict(conv.state_dict())
    return conv, linear


def test_patchify_takes_squares_of_pixels_row_by_row():
    images = random_images(small_config(image_size=(6, 8), patch_size=(3, 2)))
    patches = patchify(images, (3, 2))
    assert patches.shape == (2, 8, 18)
    for b in range(2):
        for row in range(2):
            for column in range(4):
                square = images[b, :, 3 * row : 3 * row + 3, 2 * column : 2 * column + 2]
                assert_close(patches[b, 4 * row + column], square.reshape(-1), rtol=0, atol=0)


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_conv_and_linear_give_equal_numbers_and_gradients(changes):
    found = []
    for embed in pair_of_embeddings(**changes):
        images = random_images(small_config(**changes)).requires_grad_()
        tokens = embed(images)
        tokens.square().sum().backward()
        found.append([tokens, images.grad, *(p.grad for p in embed.parameters())])
    for by_conv, by_linear in zip(*found, strict=True):
        assert by_conv.abs().max() > 0
        assert_close(by_conv, by_linear, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["conv", "linear"])
def test_a_token_depends_only_on_the_pixels_of_its_patch(kind):
    config = small_config(image_size=(8, 24), patch_size=(4, 8), patch_embed=kind)
    embed = PatchEmbed(config)
    images = random_images(config, batch=1)
    changed = images.clone()
    changed[0, 1, 6, 17] += 1  # row 1, column 2 of a grid of 2 × 3
    moved = (embed(changed) - embed(images)).abs().amax(dim=(0, 2)) > 0
    assert moved.tolist() == [False, False, False, False, False, True]


def test_stem_halves_the_image_per_layer_before_patches_are_cut():
    config = small_config(image_size=(16, 32), patch_size=(8, 4), stem=(3, 5))
    embed, images = PatchEmbed(config), random_images(config)
    features = embed.stem(images)
    assert features.shape == (2, 5, 4, 8)
    assert embed.patch == (2, 1)
    assert embed(images).shape == (2, 2 * 8, config.width)
    first, last = embed.stem[0], embed.stem[2]
    by_hand = nn.functional.gelu(last(nn.functional.gelu(first(images))))
    assert_close(features, by_hand, rtol=0, atol=0)


def test_the_stem_does_not_mix_images_of_a_batch():
    config = small_config(stem=(4, 6))
    embed, images = PatchEmbed(config).train(), random_images(config, batch=3)
    assert_close(embed(images)[1:2], embed(images[1:2]))


def test_without_a_stem_the_weights_are_those_of_one_convolution():
    assert sorted(PatchEmbed(small_config()).state_dict()) == ["proj.bias", "proj.weight"]
