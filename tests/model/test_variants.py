import re

import pytest

from vitkit.errors import UnknownNameError
from vitkit.model import VARIANTS, create_model, find_variants
from vitkit.model.variants import SIZES, get_config, list_models

NAME = re.compile(r"vit_(?P<size>[a-z]+)_(?P<cut>patch|stem)(?P<patch>\d+)_(?P<image>\d+)")


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_builds_and_matches_its_name(name):
    variant, parts = VARIANTS[name], NAME.fullmatch(name)
    assert variant.name == name
    assert variant.source
    c = create_model(name, device="meta").config
    assert c == variant.config
    assert c.patch_size == (int(parts["patch"]),) * 2
    assert c.image_size == (int(parts["image"]),) * 2
    assert bool(c.stem) == (parts["cut"] == "stem")
    if parts["size"] in SIZES:
        size = SIZES[parts["size"]]
        assert (c.width, c.depth, c.heads, c.mlp_width) == (size.width, size.depth, size.heads, size.mlp_width)
        assert c.heads * c.head_width == c.width


# width, depth, heads, MLP as printed in the papers named in the table of sizes
PRINTED = {
    "vit_tiny_patch16_224": (192, 12, 3, 768),
    "vit_small_patch16_224": (384, 12, 6, 1536),
    "vit_base_patch16_224": (768, 12, 12, 3072),
    "vit_large_patch16_224": (1024, 24, 16, 4096),
    "vit_huge_patch14_224": (1280, 32, 16, 5120),
    "vit_giant_patch14_224": (1408, 40, 16, 6144),
    "vit_gigantic_patch14_224": (1664, 48, 16, 8192),
    "vit_nano_patch4_32": (48, 4, 4, 192),
}


@pytest.mark.parametrize(("name", "numbers"), PRINTED.items())
def test_sizes_are_those_printed_in_the_papers(name, numbers):
    c = get_config(name)
    assert (c.width, c.depth, c.heads, c.mlp_width) == numbers


def test_variants_are_found_by_pattern_or_by_a_part_of_the_name():
    assert {v.name for v in find_variants("vit_base_patch*_384")} == {"vit_base_patch32_384", "vit_base_patch16_384"}
    assert {v.name for v in find_variants("stem4")} == {"vit_pico_stem4_32", "vit_micro_stem4_32", "vit_mini_stem4_32"}
    assert len(find_variants()) == len(VARIANTS)


def test_an_unknown_name_suggests_the_nearest():
    for find in (find_variants, get_config):
        with pytest.raises(
            UnknownNameError, match=r"unknown model 'vit_hug_patch14_224'; did you mean 'vit_huge_patch14_224'"
        ):
            find("vit_hug_patch14_224")


def test_models_are_listed_by_pattern():
    assert list_models("vit_tiny*") == ["vit_tiny_patch16_224", "vit_tiny_patch16_384"]
    assert len(list_models()) == len(VARIANTS)
