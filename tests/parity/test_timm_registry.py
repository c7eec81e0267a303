"""A short form of timm_registry: architectures of every family, and the ways in which weights were once misread."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitkit.errors import WeightsError
from vitkit.weights.convert import convert
from vitkit.weights.load import load_model, load_with_report

from .compare import assert_near, random_images, randomise
from .test_layouts import google_names
from .timm_registry import try_architecture

# name → verdicts of the hub folder, of a file named after the architecture, and of a bare file
ARCHITECTURES = {
    "vit_tiny_patch16_224": "right right right",
    "test_vit": "right right right",
    "test_vit3": "right right refused",
    "test_vit4": "right right right",
    "deit3_small_patch16_224": "right right right",
    "vit_wee_patch16_reg1_gap_256": "right right right",
    "vit_small_patch16_dinov3": "right right refused",
    "vit_small_patch16_rope_224": "right right refused",
    "vit_small_patch16_rope_ape_224": "right right refused",
    "vit_pe_core_tiny_patch16_384": "right right refused",
    "vit_pe_spatial_tiny_patch16_512": "right right refused",
    "eva02_tiny_patch14_224": "right right right",
    "vit_base_patch16_siglip_224": "right right refused",
    "vit_so400m_patch14_siglip_384": "right right refused",
    "vit_base_patch16_gap_224": "right right refused",
    "vit_base_patch16_rpn_224": "refused refused refused",
    "vit_base_patch32_clip_quickgelu_224": "right right refused",
    "vit_small_patch16_rope_mixed_224": "refused refused refused",
    "beit_base_patch16_224": "refused refused refused",
    "vit_relpos_small_patch16_224": "refused refused refused",
    "cait_xxs24_224": "refused refused refused",
    "xcit_nano_12_p16_224": "refused refused refused",
    "swin_tiny_patch4_window7_224": "refused refused refused",
    "naflexvit_base_patch16_gap": "refused refused refused",
    "vit_tiny_r_s16_p8_224": "refused refused refused",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_family_is_computed_as_by_timm_or_refused(timm, tmp_path, name):
    module = timm.models.get_arch_name(name)
    outcomes = list(try_architecture(module, name, tmp_path))
    assert " ".join(o.verdict for o in outcomes) == ARCHITECTURES[name], outcomes


def small(timm, **options):
    values = dict(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=4, num_classes=7, mlp_ratio=2)
    return randomise(timm.models.VisionTransformer(**{**values, **options})), {**values, **options}


def hub_folder(timm, model, arguments, folder, name="vit_base_patch16_224", **config):
    model.pretrained_cfg = {"architecture": name, "input_size": (3, 32, 32), **config}
    timm.models.save_for_hf(model, folder, model_args=arguments)
    return folder


def test_a_grid_that_is_not_square_is_read_from_the_size_in_the_config(timm, tmp_path):
    theirs, arguments = small(timm, img_size=(32, 128))  # 4 × 16 patches, as many as 8 × 8
    images = random_images((32, 128))
    ours = load_model(hub_folder(timm, theirs, arguments, tmp_path, input_size=(3, 32, 128)))
    assert ours.config.grid == (4, 16)
    assert_near(ours(images), theirs(images))


def test_pixels_beyond_the_last_patch_are_dropped_as_timm_does(timm, tmp_path):
    theirs, arguments = small(timm, img_size=35)
    ours = load_model(hub_folder(timm, theirs, arguments, tmp_path, input_size=(3, 35, 35), mean=(0.5,) * 3,
                                 std=(0.5,) * 3))  # fmt: skip
    images = random_images((35, 35))
    assert ours.info.preprocess.size == (35, 35)
    assert_near(ours(images), theirs(images))


def test_model_arguments_that_change_the_function_are_refused_if_they_are_unknown(timm, tmp_path):
    theirs, arguments = small(timm)
    hub_folder(timm, theirs, {**arguments, "attn_gate": True}, tmp_path)
    with pytest.raises(WeightsError, match="the model argument attn_gate=True is not supported"):
        load_model(tmp_path)


def test_an_architecture_that_timm_does_not_have_in_the_table_is_refused_by_name(timm, tmp_path):
    theirs, arguments = small(timm)
    hub_folder(timm, theirs, arguments, tmp_path, name="samvit_base_patch16")
    with pytest.raises(WeightsError, match="timm's architecture samvit_base_patch16 is not supported"):
        load_model(tmp_path)


@torch.no_grad()
def test_the_check_of_convert_is_not_circular(timm, tmp_path):
    """The source is built by timm from timm's own config, not from the config that vitkit inferred."""
    theirs, arguments = small(timm)
    folder = hub_folder(timm, theirs, arguments, tmp_path / "theirs")
    report = convert(folder, tmp_path / "right", "vitkit")
    assert report.differences[0].what == "source, run by the library of timm"
    assert report.differences[0].difference < 1e-5 * report.differences[0].scale
    with pytest.raises(WeightsError, match="source, run by the library of timm: logits differ by"):
        convert(folder, tmp_path / "wrong", "vitkit", config={"heads": 2})
    assert not (tmp_path / "wrong").exists()


@torch.no_grad()
def test_the_name_of_the_architecture_can_be_given_or_be_the_file_name(timm, tmp_path):
    theirs = randomise(timm.create_model("vit_small_patch16_dinov3", depth=2))
    images = random_images((64, 64))
    for path, options in (
        (tmp_path / "weights.safetensors", {"architecture": "vit_small_patch16_dinov3"}),
        (tmp_path / "weights.safetensors", {"architecture": "timm/vit_small_patch16_dinov3.lvd1689m"}),
        (tmp_path / "vit_small_patch16_dinov3.lvd1689m.safetensors", {}),
    ):
        save_file(theirs.state_dict(), path)
        ours, report = load_with_report(path, **options)
        assert report.architecture == "vit_small_patch16_dinov3"
        assert_near(ours(images), theirs(images))
    assert any("from the file name" in line for line in report.assumed)
    with pytest.raises(WeightsError, match="is not a vit_small_patch16_224: a checkpoint"):
        load_model(path, architecture="vit_small_patch16_224")


@torch.no_grad()
def test_openai_clip_without_config_asks_for_its_activation(tmp_path):
    state = {"visual.conv1.weight": torch.randn(768, 3, 32, 32), "visual.class_embedding": torch.randn(768),
             "visual.positional_embedding": torch.randn(50, 768), "visual.proj": torch.randn(768, 512)}  # fmt: skip
    for name in ("ln_pre", "ln_post", "transformer.resblocks.0.ln_1", "transformer.resblocks.0.ln_2"):
        state |= {f"visual.{name}.weight": torch.ones(768), f"visual.{name}.bias": torch.zeros(768)}
    block = "visual.transformer.resblocks.0."
    for name, rows, columns in (("attn.in_proj_", 2304, 768), ("attn.out_proj.", 768, 768), ("mlp.c_fc.", 3072, 768),
                                ("mlp.c_proj.", 768, 3072)):  # fmt: skip
        state |= {f"{block}{name}weight": torch.randn(rows, columns), f"{block}{name}bias": torch.zeros(rows)}
    torch.save(state, tmp_path / "ViT-B-32.pt")
    with pytest.raises(WeightsError, match="the tensors do not show mlp: "):
        load_model(tmp_path / "ViT-B-32.pt")
    assert load_model(tmp_path / "ViT-B-32.pt", config={"mlp": "quick_gelu"}).config.mlp == "quick_gelu"


def test_big_vision_files_without_positions_ask_for_them(timm, tmp_path):
    theirs, _ = small(timm, num_heads=4, depth=3)
    arrays = google_names(theirs.state_dict(), 4)
    renamed = {}
    for key, array in arrays.items():
        new = key.replace("MultiHeadDotProductAttention_1", "MultiHeadDotProductAttention_0")
        new = new.replace("MlpBlock_3", "MlpBlock_0").replace("LayerNorm_2", "LayerNorm_1")
        renamed["params/" + new] = array
    for key in ("params/cls", "params/Transformer/posembed_input/pos_embedding"):
        del renamed[key]
    np.savez(tmp_path / "gap.npz", **renamed)
    with pytest.raises(WeightsError, match=r"has no position table: .* such as position=sincos"):
        load_model(tmp_path / "gap.npz")
    assert load_model(tmp_path / "gap.npz", config={"position": "sincos"}).config.pooling == "mean"


def test_a_block_without_one_bias_is_incomplete_and_not_filled_with_zeros(timm, tmp_path):
    theirs, arguments = small(timm, pre_norm=True)
    folder = hub_folder(timm, theirs, arguments, tmp_path / "hub", name="vit_base_patch16_clip_224")
    weights = next(path for path in folder.iterdir() if path.suffix != ".json")
    state = theirs.state_dict()
    del state["blocks.1.mlp.fc1.bias"]
    torch.save(state, weights) if weights.suffix == ".bin" else save_file(state, weights)
    with pytest.raises(
        WeightsError, match=r"is incomplete: 1 tensors are missing, the first is blocks\.1\.mlp\.fc1\.bias"
    ):
        load_model(folder)


def test_the_config_that_timm_writes_has_what_the_reader_expects(timm, tmp_path):
    theirs, arguments = small(timm)
    values = json.loads((hub_folder(timm, theirs, arguments, tmp_path) / "config.json").read_text(encoding="utf-8"))
    assert {"architecture", "model_args", "pretrained_cfg", "global_pool"} <= values.keys()


def test_normalisation_by_name_is_that_of_all_weights_that_timm_publishes(timm):
    from vitkit.weights.architectures import by_name, normalisation

    checked = 0
    for module in ("vision_transformer", "deit", "eva"):
        for full in timm.list_models(module=module, include_tags=True):
            name, cfg = full.split(".")[0], timm.get_pretrained_cfg(full)
            try:
                by_name(name, "here")
            except WeightsError:
                continue
            if cfg is None or not (cfg.hf_hub_id or cfg.url) or (known := normalisation(name)) is None:
                continue
            assert known["mean"] == pytest.approx(cfg.mean, abs=1e-3), full
            assert known["std"] == pytest.approx(cfg.std, abs=1e-3), full
            checked += 1
    assert checked > 150


def test_a_named_file_whose_published_weights_differ_has_no_preprocessing(timm, tmp_path):
    theirs = timm.create_model("vit_tiny_patch16_224", depth=2)
    save_file(theirs.state_dict(), tmp_path / "vit_tiny_patch16_224.augreg_in1k.safetensors")
    model, report = load_with_report(tmp_path / "vit_tiny_patch16_224.augreg_in1k.safetensors")
    assert model.info.preprocess is None
    assert any(
        line.startswith("no preprocessing: published weights of vit_tiny_patch16_224") for line in report.assumed
    )
