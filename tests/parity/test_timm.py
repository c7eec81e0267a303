"""Our state-dict keys are timm's: its weights load strictly, without conversion."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vitkit.model import VARIANTS, ViTConfig, create_model
from vitkit.model.pos_embed import resample_table

from .compare import assert_near, assert_same_numbers, random_images, randomise

SIZE = dict(img_size=(32, 48), patch_size=(8, 8), embed_dim=48, depth=3, num_heads=4, num_classes=7, mlp_ratio=2)
OURS = dict(image_size=(32, 48), patch_size=8, width=48, depth=3, heads=4, head_width=12, num_classes=7, mlp_width=96)

# timm's options, and the equivalent config of vitkit
CASES = {
    "class token": ({}, {}),
    "rectangular patches": (dict(patch_size=(16, 8)), dict(patch_size=(16, 8))),
    "one channel": (dict(in_chans=1), dict(in_channels=1)),
    "no qkv bias": (dict(qkv_bias=False), dict(qkv_bias=False)),
    "qk_norm": (dict(qk_norm=True), dict(qk_norm=True)),
    "layer scale": (dict(init_values=1e-5), dict(layer_scale=1e-5)),
    "no class position": (dict(no_embed_class=True), dict(class_position=False)),
    "registers": (dict(reg_tokens=3, no_embed_class=True), dict(registers=3, class_position=False)),
    "no position": (dict(pos_embed="none"), dict(position="none")),
    "tanh gelu": (dict(act_layer="gelu_tanh"), dict(mlp="gelu_tanh")),
    "swiglu": (dict(mlp_layer="SwiGLUPacked", act_layer=nn.SiLU), dict(mlp="swiglu", mlp_width=48)),
    "mean, norm after": (dict(global_pool="avg"), dict(pooling="mean", final_norm="pooled")),
    "mean, norm before": (dict(global_pool="avg", fc_norm=False), dict(pooling="mean")),
    "mean without class token": (
        dict(global_pool="avg", class_token=False, reg_tokens=2, no_embed_class=True),
        dict(pooling="mean", final_norm="pooled", class_token=False, registers=2),
    ),
    "mean of all": (
        dict(global_pool="avg", fc_norm=False, pool_include_prefix=True, reg_tokens=2, no_embed_class=True),
        dict(pooling="mean_all", registers=2, class_position=False),
    ),
    "attention pooling": (dict(global_pool="map", class_token=False), dict(pooling="attention", class_token=False)),
    "attention pooling over the prefix too": (
        dict(global_pool="map", pool_include_prefix=True, reg_tokens=2, no_embed_class=True),
        dict(pooling="attention", registers=2, class_position=False),
    ),
    "features": (dict(num_classes=0), dict(num_classes=0)),
}  # fmt: skip

INPUTS = {"own size": (32, 48), "larger square": (64, 64), "smaller": (16, 32), "tall": (96, 16)}


def vision_transformer(timm, **options):
    from timm.layers import SwiGLUPacked

    if options.get("mlp_layer"):
        options["mlp_layer"] = SwiGLUPacked
    return randomise(timm.models.VisionTransformer(**{**SIZE, **options}))


def unchanged(state):
    return state


@pytest.mark.parametrize("size", INPUTS.values(), ids=INPUTS)
@pytest.mark.parametrize(("theirs", "ours"), CASES.values(), ids=CASES)
def test_outputs_and_gradients_equal_timm_at_any_size(timm, theirs, ours, size):
    model = vision_transformer(timm, dynamic_img_size=True, **theirs)
    config = ViTConfig(**{**OURS, **ours})
    assert_same_numbers(config, model, unchanged, random_images(size, channels=config.in_channels))


def test_position_rows_of_registers_are_folded_into_their_tokens(timm):
    model = vision_transformer(timm, reg_tokens=3, dynamic_img_size=True)

    def fold(state):
        table = state["pos_embed"]
        rows = torch.cat([table[:, :1], table[:, 4:]], dim=1)
        return {**state, "reg_token": state["reg_token"] + table[:, 1:4], "pos_embed": rows}

    ours = create_model(ViTConfig(**OURS, registers=3)).eval()
    ours.load_state_dict(fold(model.state_dict()))
    with torch.no_grad():
        for size in INPUTS.values():
            assert_near(ours(random_images(size)), model(random_images(size)))


@torch.no_grad()
def test_tokens_after_every_block_equal_timm(timm):
    model = vision_transformer(timm, reg_tokens=3, no_embed_class=True, dynamic_img_size=True)
    ours = create_model(ViTConfig(**OURS, registers=3, class_position=False)).eval()
    ours.load_state_dict(model.state_dict())
    images = random_images((64, 32))
    for norm in (False, True):
        expected = model.forward_intermediates(
            images, norm=norm, output_fmt="NLC", return_prefix_tokens=True, intermediates_only=True
        )
        for mine, (patches, prefix) in zip(ours.forward_intermediates(images, norm=norm), expected, strict=True):
            assert_near(mine, torch.cat([prefix, patches], dim=1))
    assert_near(ours.forward_features(images), model.forward_features(images))


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_small_patch32_224"])
@torch.no_grad()
def test_registered_timm_models_load_into_variants_of_the_same_name(timm, name):
    model = randomise(timm.create_model(name))
    ours = create_model(name, device="meta").eval()
    ours.load_state_dict(model.state_dict(), assign=True)
    images = random_images((224, 224), batch=1)
    assert_near(ours(images), model(images))


def test_variants_with_timm_names_have_timm_shapes(timm):
    shared = sorted(VARIANTS.keys() & set(timm.list_models("vit_*_224")))
    assert len(shared) >= 10
    for name in shared:
        with torch.device("meta"):
            theirs = timm.create_model(name, num_classes=1000)
        ours = create_model(name, device="meta")
        shapes = [{k: tuple(v.shape) for k, v in model.state_dict().items()} for model in (ours, theirs)]
        assert shapes[0] == shapes[1], name


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_resampled_positions_equal_timm(timm, mode):
    from timm.layers import resample_abs_pos_embed

    table = torch.randn(1, 1 + 6 * 9, 16, generator=torch.Generator().manual_seed(0))
    for new in [(6, 9), (9, 6), (3, 3), (12, 18), (7, 5), (1, 1), (2, 27)]:
        expected = resample_abs_pos_embed(table, new, (6, 9), num_prefix_tokens=1, interpolation=mode)
        found = torch.cat([table[0, :1], resample_table(table[0, 1:], (6, 9), new, mode)])
        assert_close(found[None], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("qk_norm", [False, True])
@torch.no_grad()
def test_attention_maps_equal_what_timm_computes_with_its_fused_path_off(timm, qk_norm):
    model = vision_transformer(timm, qk_norm=qk_norm)
    seen = []
    for block in model.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop = Keep(seen)
    ours = create_model(ViTConfig(**OURS, qk_norm=qk_norm)).eval()
    ours.load_state_dict(model.state_dict())
    images = random_images((32, 48))
    model(images)
    assert_near(ours.attention(images), torch.stack(seen))


class Keep(nn.Module):
    """Replace timm's attention dropout and record the weights."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def forward(self, weights):
        self.seen.append(weights)
        return weights
