import pytest
import torch
from torch import nn

from vitkit.model import ViT, create_model
from vitkit.model.summary import summarize, totals
from vitkit.model.variants import get_config

from .small import OPTIONS, random_images, small_config

# millions of parameters and GMACs, as papers and model zoos print them
PUBLISHED = [
    ("vit_tiny_patch16_224", 5.72, 1.26),
    ("vit_small_patch16_224", 22.05, 4.61),
    ("vit_base_patch16_224", 86.57, 17.58),
    ("vit_large_patch16_224", 304.33, 61.60),
    ("vit_huge_patch14_224", 632.05, 167.40),
]


@pytest.mark.parametrize(("name", "millions", "gmacs"), PUBLISHED)
def test_counts_equal_published_ones(name, millions, gmacs):
    total = totals(get_config(name))
    assert round(total.parameters / 1e6, 2) == millions
    assert round(total.macs / 1e9, 2) == gmacs


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("vit_nano_patch4_32", 0.115, 0.125), ("vit_pico_stem4_32", 0.2, 0.3), ("vit_mini_stem4_32", 3.0, 3.8)],
)
def test_small_models_keep_their_size(name, least, most):
    assert least <= totals(get_config(name)).parameters / 1e6 <= most


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_rows_have_the_shapes_and_parameters_of_the_real_model(options):
    config = small_config(**options)
    model = create_model(config, seed=0).eval()
    modules, shapes = dict(model.named_modules()), {}
    for path, module in modules.items():
        module.register_forward_hook(lambda m, i, output, path=path: shapes.__setitem__(path, tuple(output.shape)))
    with torch.no_grad():
        model(random_images(config, batch=1))
    rows = summarize(config, depth=9)
    assert rows[0].path == ""
    for row in rows:
        if row.path == "blocks":  # a list, which is never called itself
            assert row.kind == f"{config.depth} × Block"
            assert row.shape == shapes["blocks.0"]
            assert row.macs == sum(r.macs for r in rows if r.path.startswith("blocks.") and r.path.count(".") == 1)
        else:
            assert row.kind == type(modules[row.path]).__name__
            assert row.shape == shapes[row.path]
        assert row.parameters == sum(p.numel() for p in modules[row.path].parameters())


def test_macs_of_a_small_model_equal_those_counted_by_hand():
    config = small_config(depth=1)  # 12 patches of 4·8 pixels, 13 tokens, width 16, 2 heads of 8, MLP 32
    rows = {row.path: row for row in summarize(config, depth=4)}
    t, d, norm = 13, 16, 5 * 13 * 16
    patches, qkv, attend, project, mlp, head = (
        12 * 96 * d,
        3 * t * d * d,
        2 * t * t * d,
        t * d * d,
        2 * t * d * 32,
        d * 5,
    )
    assert rows["patch_embed"].macs == patches
    assert rows["blocks.0.attn"].macs == qkv + attend + project
    assert rows["blocks.0.mlp"].macs == mlp
    assert rows["blocks.0"].macs == qkv + attend + project + mlp + 2 * norm
    assert rows["head"].macs == head
    assert rows[""].macs == patches + qkv + attend + project + mlp + 3 * norm + head


def test_depth_limits_the_tree_and_image_size_changes_the_cost():
    config = small_config()
    assert [row.path for row in summarize(config, depth=0)] == [""]
    assert max(row.path.count(".") for row in summarize(config, depth=2)) == 1
    own, larger = totals(config), summarize(config, image_size=(32, 48), depth=0)[0]
    assert larger.parameters == own.parameters
    assert larger.macs > 4 * own.macs  # four times the patches, and more for attention


@pytest.mark.parametrize("name", ["vit_nano_patch4_32", "vit_mini_stem4_32", "vit_tiny_patch16_224"])
def test_totals_from_two_blocks_equal_the_count_of_all(name):
    config = get_config(name)
    assert totals(config) == summarize(config, depth=0)[0]


def test_the_multiply_adds_of_an_rms_norm_are_counted():
    plain, rms = (totals(small_config(norm=norm)).macs for norm in ("layer", "rms"))
    tokens, norms = 1 + 12, 2 * 3 + 1
    assert plain - rms == (5 - 3) * tokens * 16 * norms


def test_a_subclass_is_counted_with_its_own_layers():
    class Wider(ViT):
        def __init__(self, config, generator=None):
            super().__init__(config, generator)
            self.norm = nn.Sequential(self.norm, nn.Linear(16, 16, bias=False))

    plain, wider = (summarize(small_config(), model_class=each)[0] for each in (ViT, Wider))
    assert wider.parameters - plain.parameters == 256
    assert wider.macs - plain.macs == 13 * 16 * 16
