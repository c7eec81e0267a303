import dataclasses
import json

import pytest

from vitkit.errors import ConfigError, UnknownNameError, UsageError
from vitkit.model import ViTConfig, create_model

from .small import OPTIONS, small_config

WRONG = [
    (dict(image_size="224"), "image_size='224': expected a whole number or (height, width)"),
    (dict(image_size=(224, 224, 3)), "image_size=(224, 224, 3): expected a whole number or (height, width)"),
    (dict(image_size=(224.0, 224)), "image_size=(224.0, 224): expected 2 values, each a whole number"),
    (dict(patch_size=True), "patch_size=(True, True): expected 2 values, each a whole number"),
    (dict(patch_size=None), "patch_size=None: expected a whole number or (height, width)"),
    (dict(stem=32), "stem=32: expected several values, each a whole number"),
    (dict(stem=("32",)), "stem=('32',): expected several values, each a whole number"),
    (dict(width=768.0), "width=768.0: expected a whole number"),
    (dict(width=True), "width=True: expected a whole number"),
    (dict(class_token=1), "class_token=1: expected True or False"),
    (dict(dropout="0.1"), "dropout='0.1': expected a number"),
    (dict(layer_scale="small"), "layer_scale='small': expected a number or None"),
    (dict(position="learnt"), "position='learnt': expected one of 'learned', 'sincos', 'rotary', 'learned_rotary', "),
    (dict(pooling=["cls"]), "pooling=['cls']: expected one of 'cls', 'mean', 'mean_all', 'cls_mean', 'attention'"),
    *(({name: 0}, f"{name}={value}: must be at least 1") for name, value in [
        ("image_size", "(0, 0)"), ("patch_size", "(0, 0)"), ("in_channels", 0), ("width", 0), ("depth", 0),
        ("heads", 0)]),
    (dict(head_width=-1), "head_width=-1: must be at least 1"),
    (dict(mlp_width=-1), "mlp_width=-1: must be at least 1"),
    (dict(width=100, heads=3), "heads=3 do not divide width=100: change one of them, or give head_width"),
    (dict(stem=(32, 0)), "stem=(32, 0): must be at least 1"),
    *(({name: -1}, f"{name}=-1: must not be negative") for name in ("registers", "head_hidden", "num_classes")),
    *(({name: rate}, f"{name}={rate}: must be at least 0 and below 1")
      for name in ("dropout", "attention_dropout", "drop_path") for rate in (-0.1, 1.0, float("nan"))),
    (dict(norm_eps=0.0), "norm_eps=0.0: must be above 0"),
    (dict(layer_scale=float("nan")), "layer_scale=nan: must be a finite number"),
    (dict(image_size=(224, 230)), "image width 230 is not a multiple of the patch width 16: use 224 or 240"),
    (dict(image_size=(12, 16)), "image height 12 is not a multiple of the patch height 16: use 16"),
    (dict(stem=(8, 8, 8), patch_size=4, image_size=32), "a stem of 3 layers needs a patch height that 8 divides"),
    (dict(class_token=False), "pooling='cls' needs class_token=True"),
    *((dict(position="sincos", width=width, heads=1), f"a width that is a multiple of 4 and at least 8, not {width}")
      for width in (4, 6)),
    (dict(position="rotary", head_width=6), "position='rotary' needs a head_width that is a multiple of 4, not 6"),
    (dict(head_hidden=8, num_classes=0), "head_hidden=8 with num_classes=0"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), WRONG, ids=[str(values) for values, _ in WRONG])
def test_a_wrong_setting_is_one_line_that_names_it_and_its_value(values, message):
    with pytest.raises(ConfigError) as caught:
        ViTConfig(**values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_config_errors_are_usage_errors_with_exit_code_2():
    assert issubclass(ConfigError, UsageError)
    assert issubclass(ConfigError, ValueError)
    assert ConfigError.exit_code == 2


def test_a_single_number_means_a_square_and_lists_of_json_become_tuples():
    config = ViTConfig.from_dict(dict(image_size=32, patch_size=[4, 8], stem=[16, 32]))
    assert (config.image_size, config.patch_size, config.stem) == ((32, 32), (4, 8), (16, 32))


def test_grid_counts_patches_down_then_across():
    assert ViTConfig(image_size=(32, 96), patch_size=(16, 8)).grid == (2, 12)


def test_prefix_counts_class_token_and_registers():
    assert ViTConfig().prefix == 1
    assert ViTConfig(registers=4).prefix == 5
    assert ViTConfig(registers=4, class_token=False, pooling="mean").prefix == 4


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_json_round_trip_keeps_every_field_and_its_type(options):
    config = small_config(**options)
    again = ViTConfig.from_json(config.to_json())
    assert again == config
    assert {k: type(v) for k, v in again.to_dict().items()} == {k: type(v) for k, v in config.to_dict().items()}


def test_json_is_a_plain_object_of_all_fields():
    fields = {field.name for field in dataclasses.fields(ViTConfig)}
    assert json.loads(ViTConfig().to_json()).keys() == fields


def test_a_partial_dictionary_makes_a_model():
    values = dict(image_size=8, patch_size=4, width=8, depth=1, heads=1, head_width=8, mlp_width=8, num_classes=3)
    model = create_model(values)
    assert model.config == ViTConfig(**values)
    assert model.head.out_features == 3


@pytest.mark.parametrize(
    ("key", "near"), [("patchsize", "patch_size"), ("num_class", "num_classes"), ("poling", "pooling")]
)
def test_an_unknown_key_suggests_the_nearest(key, near):
    for make in (ViTConfig.from_dict, lambda values: ViTConfig().replace(**values)):
        with pytest.raises(UnknownNameError, match=f"unknown ViTConfig key '{key}'; did you mean '{near}'"):
            make({key: 1})


def test_config_is_frozen_and_hashable():
    config = ViTConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.width = 1
    assert len({config, ViTConfig(), ViTConfig(width=960)}) == 2


def test_replace_leaves_the_original_and_checks_the_new():
    config = ViTConfig()
    assert config.replace(image_size=384).image_size == (384, 384)
    assert config.image_size == (224, 224)
    with pytest.raises(ConfigError, match="image height 100"):
        config.replace(image_size=100)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '"vit"'])
def test_text_that_is_not_a_config_is_one_clear_error(text):
    with pytest.raises(ConfigError, match="invalid model config"):
        ViTConfig.from_json(text)


def test_another_width_or_number_of_heads_scales_head_and_mlp_unless_they_are_given():
    config = create_model("vit_tiny_patch16_224", device="meta", width=128, heads=4).config
    assert (config.width, config.head_width, config.mlp_width) == (128, 32, 512)
    assert create_model("vit_tiny_patch16_224", device="meta", width=384).config.head_width == 128
    assert create_model("vit_tiny_patch16_224", device="meta", heads=6).config.head_width == 32
    given = ViTConfig().replace(width=384, head_width=64, mlp_width=100)
    assert (given.head_width, given.mlp_width) == (64, 100)
    small = ViTConfig(image_size=32, patch_size=4, width=48, heads=3)
    assert (small.head_width, small.mlp_width) == (16, 192)
    assert ViTConfig.from_dict(given.to_dict()) == given
    assert given.replace(depth=2).mlp_width == 100


def test_the_names_of_timm_are_accepted_and_a_setting_given_twice_is_an_error():
    names = dict(embed_dim=96, num_heads=4, head_dim=20, mlp_ratio=3.0, img_size=48, patch_size=8)
    config = create_model("vit_tiny_patch16_224", device="meta", **names).config
    assert (config.width, config.heads, config.head_width, config.mlp_width) == (96, 4, 20, 288)
    assert config.image_size == (48, 48)
    assert ViTConfig.from_dict({"embed_dim": 96, "num_heads": 4}).width == 96
    assert ViTConfig().replace(mlp_ratio=2).mlp_width == 1536
    with pytest.raises(ConfigError, match="embed_dim and width are both given"):
        ViTConfig().replace(embed_dim=96, width=96)
    with pytest.raises(ConfigError, match="mlp_ratio='4': expected a number"):
        ViTConfig().replace(mlp_ratio="4")
