"""Files of other libraries become a vitkit model and back; the libraries' own models give the same outputs."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from vitkit.model import ViTConfig, create_model
from vitkit.weights.convert import write_model
from vitkit.weights.load import load_model, load_with_report
from vitkit.weights.reference_models import Checkpoint, run_reference

from .compare import assert_near, peer, random_images, randomise

HF = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, image_size=32, patch_size=8)
TIMM = dict(img_size=(32, 48), patch_size=8, embed_dim=48, depth=3, num_heads=4, num_classes=7, mlp_ratio=2)


def tv(transformers, name, **options):
    config = getattr(transformers, f"{name.split('For')[0].removesuffix('Model')}Config")
    return randomise(getattr(transformers, name)(config(**{**HF, **options})))


HF_CASES = {
    "vit": ("ViTForImageClassification", dict(intermediate_size=96, num_labels=7)),
    "vit, no qkv bias, other eps": (
        "ViTForImageClassification",
        dict(intermediate_size=96, num_labels=7, qkv_bias=False, layer_norm_eps=1e-2),
    ),
    "vit, non-square": ("ViTForImageClassification", dict(intermediate_size=96, num_labels=7, image_size=(32, 48))),
    "vit, one channel, tanh": (
        "ViTForImageClassification",
        dict(intermediate_size=96, num_labels=7, num_channels=1, hidden_act="gelu_pytorch_tanh"),
    ),
    "vit, body": ("ViTModel", dict(intermediate_size=96)),
    "deit, distilled": ("DeiTForImageClassificationWithTeacher", dict(intermediate_size=96, num_labels=7)),
    "dinov2": ("Dinov2ForImageClassification", dict(mlp_ratio=2, num_labels=7)),
    "dinov2, body, swiglu": ("Dinov2Model", dict(mlp_ratio=2, use_swiglu_ffn=True)),
    "dinov2 with registers": (
        "Dinov2WithRegistersForImageClassification",
        dict(mlp_ratio=2, num_labels=7, num_register_tokens=3, use_swiglu_ffn=True),
    ),
    "dinov2 with registers, body": ("Dinov2WithRegistersModel", dict(mlp_ratio=2, num_register_tokens=3)),
    "dinov3": ("DINOv3ViTModel", dict(intermediate_size=96, num_register_tokens=3)),
    "dinov3, swiglu": ("DINOv3ViTModel", dict(intermediate_size=96, use_gated_mlp=True, hidden_act="silu")),
}


def by_library(layout, path, written, images):
    return run_reference(layout, Checkpoint(path, written.tensors, written.config, written=True), images)


def answer(model, images):
    output = model(images)
    return output.logits if "logits" in output else output.last_hidden_state[:, 0]


@pytest.mark.parametrize("names", ["on disk", "of modules"])
@pytest.mark.parametrize(("name", "options"), HF_CASES.values(), ids=HF_CASES)
@torch.no_grad()
def test_transformers_folders_in_and_out(transformers, tmp_path, name, options, names):
    theirs = tv(transformers, name, **options)
    theirs.save_pretrained(tmp_path / "theirs")
    if names == "of modules":
        save_file(theirs.state_dict(), tmp_path / "theirs" / "model.safetensors")
    ours, report = load_with_report(tmp_path / "theirs")
    images = random_images(ours.config.image_size, channels=ours.config.in_channels)
    assert_near(ours(images), answer(theirs, images))
    assert report.mapped + len(report.dropped) == len(load_file(tmp_path / "theirs" / "model.safetensors"))
    written = write_model(ours, tmp_path / "back", "hf")
    back, loading = getattr(transformers, name).from_pretrained(tmp_path / "back", output_loading_info=True)
    missing = {key for key in loading["missing_keys"] if "pooler" not in key and "mask_token" not in key}
    assert not missing
    assert not loading["unexpected_keys"]
    assert_near(answer(back.eval(), images), answer(theirs, images))
    assert_near(
        run_reference(
            written.layout.name, Checkpoint(tmp_path / "back", written.tensors, written.config, written=True), images
        ),
        ours(images),
    )
    assert_near(load_model(tmp_path / "back")(images), ours(images))


@torch.no_grad()
def test_a_classifier_on_the_class_token_alone_becomes_a_dinov2_classifier(transformers, tmp_path):
    config = ViTConfig(image_size=32, patch_size=8, width=48, depth=2, heads=4, head_width=12, mlp_width=96,
                       registers=2, layer_scale=1.0, num_classes=7)  # fmt: skip
    ours = randomise(create_model(config))
    write_model(ours, tmp_path, "hf")
    back = transformers.Dinov2WithRegistersForImageClassification.from_pretrained(tmp_path).eval()
    images = random_images((32, 32))
    assert_near(back(images).logits, ours(images))


TIMM_CASES = {
    "plain": {},
    "no qkv bias": dict(qkv_bias=False),
    "rectangular patches, one channel": dict(patch_size=(16, 8), in_chans=1),
    "qk_norm, layer scale": dict(qk_norm=True, init_values=0.1),
    "no class position": dict(no_embed_class=True),
    "registers": dict(reg_tokens=3, no_embed_class=True),
    "registers with positions": dict(reg_tokens=3),
    "norm before the blocks": dict(pre_norm=True),
    "mean, norm after": dict(global_pool="avg"),
    "mean without class token": dict(global_pool="avg", class_token=False),
    "attention pooling": dict(global_pool="map", class_token=False),
    "features": dict(num_classes=0),
}


@pytest.mark.parametrize("options", TIMM_CASES.values(), ids=TIMM_CASES)
@torch.no_grad()
def test_timm_state_dicts_in_and_out(timm, tmp_path, options):
    theirs = randomise(timm.models.VisionTransformer(**{**TIMM, **options}))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    given = {"heads": 4, "image_size": (32, 48), "mlp": "gelu", "norm_eps": 1e-6, "position": "learned"}
    ours = load_model(tmp_path / "theirs.safetensors", config=given)
    images = random_images((32, 48), channels=ours.config.in_channels)
    assert_near(ours(images), theirs(images))
    written = write_model(ours, tmp_path / "back", "timm")
    assert_near(
        by_library("timm", tmp_path / "back", written, images),
        theirs(images),
    )
    assert_near(load_model(tmp_path / "back")(images), theirs(images))


@pytest.mark.parametrize("options", [{}, dict(act_layer="gelu_tanh"), dict(reg_tokens=2), dict(global_pool="avg")])
@torch.no_grad()
def test_timm_loads_the_hub_folder_that_we_write(timm, tmp_path, options):
    theirs = randomise(timm.models.VisionTransformer(**{**TIMM, **options}))
    save_file(theirs.state_dict(), tmp_path / "theirs.safetensors")
    act = {"mlp": options["act_layer"]} if "act_layer" in options else {}
    ours = load_model(tmp_path / "theirs.safetensors", config={"heads": 4, "image_size": (32, 48), **act})
    write_model(ours, tmp_path / "hub", "timm")
    back = timm.create_model(f"local-dir:{tmp_path / 'hub'}", pretrained=True).eval()
    images = random_images((32, 48))
    assert_near(back(images), theirs(images))


@torch.no_grad()
def test_a_distilled_deit_of_timm_in_and_out(timm, tmp_path):
    theirs = randomise(timm.models.deit.VisionTransformerDistilled(**{**TIMM, "img_size": 32}))
    save_file(theirs.state_dict(), tmp_path / "deit.safetensors")
    ours = load_model(tmp_path / "deit.safetensors", config={"heads": 4})
    images = random_images((32, 32))
    assert ours.config.distillation
    assert_near(ours(images), theirs(images))
    first, second = ours.forward_heads(images)
    theirs.set_distilled_training()
    for found, expected in zip((first, second), theirs.train()(images), strict=True):
        assert_near(found, expected)
    written = write_model(ours, tmp_path / "back", "timm")
    assert_near(
        by_library("timm", tmp_path / "back", written, images),
        ours(images),
    )


@pytest.mark.parametrize("hidden", [None, 20])
@torch.no_grad()
def test_torchvision_in_and_out(tmp_path, hidden):
    models = peer("torchvision.models.vision_transformer")
    sizes = dict(image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=48, mlp_dim=96, num_classes=7)
    theirs = randomise(models.VisionTransformer(**sizes, representation_size=hidden))
    torch.save(theirs.state_dict(), tmp_path / "vit.pth")
    ours, report = load_with_report(tmp_path / "vit.pth", config={"heads": 4})
    images = random_images((32, 32))
    assert report.layout == "torchvision"
    assert_near(ours(images), theirs(images))
    back = models.VisionTransformer(**sizes, representation_size=hidden).eval()
    back.load_state_dict(write_model(ours, tmp_path / "back.safetensors", "torchvision").tensors)
    assert_near(back(images), theirs(images))


def google_names(state, heads, hidden=False, prefix=""):
    """Return timm's tensors with the names and shapes of the published .npz files (Flax: kernels are input first)."""
    width = state["norm.weight"].shape[0]
    shape = (heads, width // heads)
    found = {
        "cls": state["cls_token"],
        "embedding/kernel": state["patch_embed.proj.weight"].permute(2, 3, 1, 0),
        "embedding/bias": state["patch_embed.proj.bias"],
        "Transformer/posembed_input/pos_embedding": state["pos_embed"],
        "Transformer/encoder_norm/scale": state["norm.weight"],
        "Transformer/encoder_norm/bias": state["norm.bias"],
        "head/kernel": state["head.weight"].T,
        "head/bias": state["head.bias"],
    }
    if hidden:
        found |= {"pre_logits/kernel": torch.eye(width) / 2, "pre_logits/bias": torch.arange(width) / width}
    for i in range(3):
        block, mine = f"Transformer/encoderblock_{i}/", f"blocks.{i}."
        for number, norm in ((0, "norm1"), (2, "norm2")):
            found[f"{block}LayerNorm_{number}/scale"] = state[f"{mine}{norm}.weight"]
            found[f"{block}LayerNorm_{number}/bias"] = state[f"{mine}{norm}.bias"]
        weights, biases = state[f"{mine}attn.qkv.weight"].chunk(3), state[f"{mine}attn.qkv.bias"].chunk(3)
        attention = f"{block}MultiHeadDotProductAttention_1/"
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            found[f"{attention}{name}/kernel"] = weight.T.reshape(width, *shape)
            found[f"{attention}{name}/bias"] = bias.reshape(shape)
        found[f"{attention}out/kernel"] = state[f"{mine}attn.proj.weight"].T.reshape(*shape, width)
        found[f"{attention}out/bias"] = state[f"{mine}attn.proj.bias"]
        for number, layer in ((0, "fc1"), (1, "fc2")):
            found[f"{block}MlpBlock_3/Dense_{number}/kernel"] = state[f"{mine}mlp.{layer}.weight"].T
            found[f"{block}MlpBlock_3/Dense_{number}/bias"] = state[f"{mine}mlp.{layer}.bias"]
    return {prefix + key: tensor.detach().numpy() for key, tensor in found.items()}


@pytest.mark.parametrize("prefix", ["", "opt/target/"])
@torch.no_grad()
def test_google_npz_files_are_read_and_written_compatibly_with_timm(timm, tmp_path, prefix):
    square = {**TIMM, "img_size": 32}
    theirs = randomise(timm.models.VisionTransformer(**square))
    np.savez(tmp_path / "vit.npz", **google_names(theirs.state_dict(), 4, prefix=prefix))
    by_timm = timm.models.VisionTransformer(**square).eval()
    by_timm.load_pretrained(str(tmp_path / "vit.npz"))
    ours = load_model(tmp_path / "vit.npz")  # the shapes show the heads
    images = random_images((32, 32))
    assert_near(by_timm(images), theirs(images))
    assert_near(ours(images), theirs(images))
    write_model(ours, tmp_path / "back.npz", "npz")
    again = timm.models.VisionTransformer(**square).eval()
    again.load_pretrained(str(tmp_path / "back.npz"))
    assert_near(again(images), theirs(images))


@torch.no_grad()
def test_the_hidden_layer_of_the_original_npz_is_kept(timm, tmp_path):
    theirs = randomise(timm.models.VisionTransformer(**{**TIMM, "img_size": 32}))
    np.savez(tmp_path / "vit.npz", **google_names(theirs.state_dict(), 4, hidden=True))
    ours = load_model(tmp_path / "vit.npz")
    images = random_images((32, 32))
    hidden = torch.tanh(theirs.forward_features(images)[:, 0] / 2 + torch.arange(48) / 48)
    assert_near(ours(images), theirs.head(hidden))
    written = write_model(ours, tmp_path / "back.npz", "npz").tensors
    for key, array in google_names(theirs.state_dict(), 4, hidden=True).items():
        np.testing.assert_array_equal(written[key], array, key)


@pytest.mark.parametrize("registers", [0, 3])
@pytest.mark.parametrize("gated", [False, True])
@torch.no_grad()
def test_dinov2_checkpoints_load_as_timm_converts_them(timm, tmp_path, registers, gated):
    """Published names: register_tokens, w12 and w3, and a position row for the class token only."""
    from timm.layers import SwiGLUPacked
    from timm.models.vision_transformer import checkpoint_filter_fn

    options = {**TIMM, "img_size": 32, "num_classes": 0, "init_values": 0.1, "reg_tokens": registers,
               "no_embed_class": bool(registers)}  # fmt: skip
    if gated:
        options |= dict(mlp_layer=SwiGLUPacked, act_layer=torch.nn.SiLU)
    theirs = randomise(timm.models.VisionTransformer(**options))
    published = {k: v.clone() for k, v in theirs.state_dict().items()} | {"mask_token": torch.zeros(1, 48)}
    for key in list(published):
        if gated and ".mlp." in key:
            published[key.replace("fc1", "w12").replace("fc2", "w3")] = published.pop(key)
    if registers:
        published["register_tokens"] = published.pop("reg_token")
        row = 0.3 * torch.ones(1, 1, 48)
        published["pos_embed"] = torch.cat([row, published["pos_embed"]], dim=1)
    torch.save(published, tmp_path / "dinov2.pth")
    theirs.load_state_dict(checkpoint_filter_fn({k: v.clone() for k, v in published.items()}, theirs))
    ours, report = load_with_report(tmp_path / "dinov2.pth", config={"heads": 4})
    images = random_images((32, 32))
    assert_near(ours(images), theirs(images))
    assert list(report.dropped) == ["mask_token"]
    back = write_model(ours, tmp_path / "back.safetensors", "dinov2").tensors
    assert back.keys() == published.keys() - {"mask_token"}
    assert all(torch.equal(back[key], published[key]) for key in back)
    timm_names = write_model(ours, tmp_path / "timm", "timm")
    assert_near(
        run_reference(
            "timm", Checkpoint(tmp_path / "timm", timm_names.tensors, timm_names.config, written=True), images
        ),
        theirs(images),
    )


@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
@torch.no_grad()
def test_the_vision_tower_of_clip_loads_from_both_layouts(transformers, timm, tmp_path, act):
    vision = dict(**HF, intermediate_size=96, hidden_act=act)
    text = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
    config = transformers.CLIPConfig(vision_config=vision, text_config=text, projection_dim=24)
    theirs = randomise(transformers.CLIPModel(config))
    theirs.save_pretrained(tmp_path / "clip")
    images = random_images((32, 32))
    output = theirs.get_image_features(images)
    expected = output if isinstance(output, torch.Tensor) else output.pooler_output
    ours, report = load_with_report(tmp_path / "clip")
    assert_near(ours(images), expected)
    assert set(report.dropped.values()) == {"CLIP's text tower"}
    assert set(report.filled) == {"patch_embed.proj.bias", "head.bias"}
    published = openai_names(theirs.state_dict()) | {"logit_scale": torch.zeros(()), "ln_final.weight": torch.ones(32)}
    torch.save({k: v.half() for k, v in published.items()}, tmp_path / "clip.pt")
    torch.save(published, tmp_path / "clip32.pt")
    same, report = load_with_report(tmp_path / "clip32.pt", config={"heads": 4, "mlp": act})
    assert_near(same(images), expected)
    assert report.layout == "openclip"
    half, report = load_with_report(tmp_path / "clip.pt", config={"heads": 4, "mlp": act})
    assert any("float16" in line for line in report.assumed)
    assert (half(images) - expected).abs().max() < 0.01 * expected.abs().max()
    from timm.models.vision_transformer import checkpoint_filter_fn

    name = {"gelu": "gelu", "quick_gelu": "quick_gelu"}[act]
    eps = {"norm_layer": lambda width, **kw: torch.nn.LayerNorm(width, eps=1e-5)}
    by_timm = timm.models.VisionTransformer(
        img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=4, num_classes=24, mlp_ratio=2, pre_norm=True,
        act_layer=name, **eps,
    ).eval()  # fmt: skip
    by_timm.load_state_dict(checkpoint_filter_fn(published, by_timm), strict=False)
    assert_near(by_timm(images), expected)


PARTS = {
    "self_attn.out_proj": "attn.out_proj",
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}


def openai_names(state):
    """Return the vision tower with OpenAI's names."""
    body = "vision_model."
    found = {
        "class_embedding": state[f"{body}embeddings.class_embedding"],
        "positional_embedding": state[f"{body}embeddings.position_embedding.weight"],
        "conv1.weight": state[f"{body}embeddings.patch_embedding.weight"],
        "proj": state["visual_projection.weight"].T,
    }
    for theirs, name in (("pre_layrnorm", "ln_pre"), ("post_layernorm", "ln_post")):
        found |= {f"{name}.{p}": state[f"{body}{theirs}.{p}"] for p in ("weight", "bias")}
    for i in range(3):
        layer, block = f"{body}encoder.layers.{i}.", f"transformer.resblocks.{i}."
        for p in ("weight", "bias"):
            found[f"{block}attn.in_proj_{p}"] = torch.cat([state[f"{layer}self_attn.{q}_proj.{p}"] for q in "qkv"])
            for theirs, name in PARTS.items():
                found[f"{block}{name}.{p}"] = state[f"{layer}{theirs}.{p}"]
    return {f"visual.{key}": tensor.contiguous() for key, tensor in found.items()}


@torch.no_grad()
def test_masked_autoencoders_of_transformers_are_read_without_their_decoder(transformers, tmp_path):
    options = dict(intermediate_size=96, decoder_num_hidden_layers=1, decoder_hidden_size=32,
                   decoder_intermediate_size=64, decoder_num_attention_heads=2, mask_ratio=0.0)  # fmt: skip
    theirs = tv(transformers, "ViTMAEForPreTraining", **options)
    theirs.save_pretrained(tmp_path)
    ours, report = load_with_report(tmp_path)
    images = random_images((32, 32))
    assert set(report.dropped.values()) == {"masked pre-training"}
    tokens = theirs.vit(images, noise=torch.arange(16.0).repeat(2, 1)).last_hidden_state  # no masking or shuffling
    assert_near(ours.forward_features(images), tokens)


@pytest.mark.parametrize("size", [(32, 32), (64, 48)])
@torch.no_grad()
def test_labels_and_preprocessing_of_transformers_round_trip(transformers, tmp_path, size):
    names = {0: "cat", 1: "dog", 2: "emu"}
    theirs = tv(transformers, "ViTForImageClassification", intermediate_size=96, id2label=names)
    theirs.save_pretrained(tmp_path / "theirs")
    processor = {
        "image_processor_type": "BitImageProcessor",
        "do_resize": True, "size": {"shortest_edge": 36}, "resample": 3,
        "do_center_crop": True, "crop_size": {"height": 32, "width": 32},
        "do_normalize": True, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6],
    }  # fmt: skip
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    ours, report = load_with_report(tmp_path / "theirs")
    assert ours.info.class_names == ("cat", "dog", "emu")
    assert not report.assumed
    seen = ours.info.preprocess
    picture = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    expected = pixel_values(transformers, tmp_path / "theirs", picture)
    assert_near(seen.normalize(seen.batch([picture])), expected, scale=3e4)  # within a rounding of 8 bits
    write_model(ours, tmp_path / "back", "hf")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "back").id2label == names
    assert torch.equal(pixel_values(transformers, tmp_path / "back", picture), expected)
    assert load_model(tmp_path / "back").info.preprocess == seen


def pixel_values(transformers, folder, picture):
    from transformers.models.bit.image_processing_pil_bit import BitImageProcessorPil

    return BitImageProcessorPil.from_pretrained(folder)(picture, return_tensors="pt")["pixel_values"]
