import re

import pytest
import torch

from vitkit.errors import WeightsError
from vitkit.model import ViTConfig, create_model
from vitkit.weights.architectures import (
    FAMILIES,
    UNSUPPORTED,
    by_name,
    by_tensors,
    find_traits,
    name_of_file,
    normalisation,
)


def state(**options):
    config = dict(width=192, heads=3, head_width=64, mlp_width=32, depth=1, image_size=32, num_classes=3)
    return create_model({**config, **options}, device="meta").state_dict()


def test_every_family_gives_values_that_a_config_accepts():
    for family in FAMILIES:
        heads = next(iter(family.heads.values()))
        ViTConfig.from_dict({"width": 64 * heads, "heads": heads, "head_width": 64, **family.values})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vit_so400m_patch14_siglip_384", {"mlp": "gelu", "heads": 16}),
        ("vit_so400m_patch16_siglip_256", {"mlp": "gelu_tanh", "heads": 16}),
        ("vit_giantopt_patch16_siglip_256", {"mlp": "gelu_tanh", "heads": 16}),
        ("vit_base_patch16_gap_224", {"heads": 16}),
        ("vit_huge_plus_patch16_dinov3", {"heads": 20, "norm_eps": 1e-5, "position": "rotary"}),
        ("vit_base_patch32_clip_quickgelu_224", {"mlp": "quick_gelu", "norm_eps": 1e-5}),
        ("vit_pe_core_base_patch16_224", {"position": "learned_rotary", "rope_grid": (14, 14), "pool_heads": 8}),
    ],
)
def test_a_name_gives_what_the_tensors_do_not_show(name, expected):
    family = by_name(name, "here")
    width = {"so400m": 1152, "giantopt": 1536, "huge": 1280}.get(re.split("_", name)[1], 768)
    found = {**family.values, "heads": family.heads.get(width)}
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("name", ["vit_base_patch16_rpn_224", "beit_base_patch16_224", "swin_tiny_patch4_window7_224"])
def test_other_architectures_are_refused_by_name(name):
    with pytest.raises(WeightsError, match=f"here: timm's architecture {name} is not supported"):
        by_name(name, "here")
    assert all(re.compile(pattern) for pattern, _ in UNSUPPORTED)


def test_file_names_that_start_with_an_architecture_are_recognised():
    plain, rotary = state(), state(position="rotary")
    traits, rotary_traits = find_traits(list(plain), plain), find_traits(list(rotary), rotary)
    assert name_of_file("deit_tiny_patch16_224.fb_in1k", traits) == "deit_tiny_patch16_224"
    assert name_of_file("deit_tiny_patch16_224_in1k", traits) == "deit_tiny_patch16_224"
    assert name_of_file("vit_small_patch16_dinov3-finetuned", rotary_traits) == "vit_small_patch16_dinov3"
    assert name_of_file("vit_small_patch16_dinov3", traits) is None  # the tensors have a table of positions
    assert name_of_file("model", traits) is None
    assert name_of_file("my_deit_tiny_patch16_224", traits) is None


def test_tensors_show_a_plain_vit_and_leave_the_activation_of_clip_open():
    plain = state()
    family = by_tensors(find_traits(list(plain), plain), 192, {}, "here")
    assert family.values["mlp"] == "gelu"
    assert family.heads[192] == 3
    clip = state(width=768, heads=12, pre_norm=True)
    with pytest.raises(WeightsError, match=r"the tensors do not show mlp, .*--architecture NAME"):
        by_tensors(find_traits(list(clip), clip), 768, {}, "here")
    given = {"mlp": "quick_gelu", "norm_eps": 1e-5, "position": "learned"}
    assert by_tensors(find_traits(list(clip), clip), 768, given, "here").rotary_order == ""


def test_traits_are_those_of_the_tensors():
    gated = state(mlp="swiglu", registers=2, sub_norm="mlp", norm="rms", pooling="attention")
    found = find_traits(list(gated), {key: torch.empty(tensor.shape, device="meta") for key, tensor in gated.items()})
    expected = {"reg": True, "gated": True, "sub": "mlp", "rms": True, "pool": True, "pre_norm": False}
    assert {key: found[key] for key in expected} == expected


def test_mean_and_deviation_are_known_only_if_all_published_weights_agree():
    assert normalisation("deit_tiny_patch16_224")["mean"][0] == 0.485
    assert normalisation("vit_so400m_patch14_siglip_384")["mean"] == (0.5, 0.5, 0.5)
    assert normalisation("vit_base_patch32_clip_quickgelu_224")["std"][0] == 0.26862954
    assert normalisation("vit_base_patch16_224") is None  # AugReg's mean is 0.5, that of others ImageNet's
