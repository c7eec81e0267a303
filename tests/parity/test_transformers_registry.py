"""Folders that transformers writes: each kind of ViT computes what transformers computes, or is refused by name."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from vitkit.errors import WeightsError
from vitkit.weights.convert import convert
from vitkit.weights.load import load_model

from .compare import assert_near, random_images, randomise

SIZES = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, image_size=32, patch_size=8)
MLP = dict(intermediate_size=96)
TEXT = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, vocab_size=50)
# class of the model → options of its config
KINDS = {
    "ViTForImageClassification": dict(num_labels=7, **MLP),
    "ViTModel": MLP,
    "ViTMSNForImageClassification": dict(num_labels=7, **MLP),
    "IJepaForImageClassification": dict(num_labels=7, **MLP),
    "IJepaModel": MLP,
    "DeiTForImageClassificationWithTeacher": dict(num_labels=7, **MLP),
    "Dinov2ForImageClassification": dict(num_labels=7, mlp_ratio=2),
    "Dinov2Model": dict(mlp_ratio=2, use_swiglu_ffn=True),
    "Dinov2WithRegistersModel": dict(mlp_ratio=2, num_register_tokens=2),
    "DINOv3ViTModel": dict(num_register_tokens=2, **MLP),
    "SiglipVisionModel": MLP,
    "SiglipForImageClassification": dict(num_labels=7, **MLP),
    "SiglipModel": MLP,
    "CLIPVisionModelWithProjection": dict(projection_dim=24, **MLP),
    "CLIPModel": dict(projection_dim=24, **MLP),
}
CONFIGS = {"SiglipVisionModel": "SiglipVisionConfig", "CLIPVisionModelWithProjection": "CLIPVisionConfig",
           "Aimv2VisionModel": "Aimv2VisionConfig"}  # fmt: skip


def build(transformers, name, **options):
    kind = name.split("For")[0].removesuffix("Model")
    config = getattr(transformers, CONFIGS.get(name, f"{kind}Config"))
    values = {**SIZES, **options}
    if name in ("SiglipForImageClassification", "SiglipModel", "CLIPModel"):
        outer = {key: values.pop(key) for key in ("num_labels", "projection_dim") if key in values}
        return randomise(getattr(transformers, name)(config(vision_config=values, text_config=TEXT, **outer)))
    return randomise(getattr(transformers, name)(config(**values)))


@torch.no_grad()
def outputs(model, ours, images, **options):
    """Return the outputs of a model of transformers that vitkit's model should equal."""
    if hasattr(model, "get_image_features"):
        found = model.get_image_features(images, **options)
        return found if isinstance(found, torch.Tensor) else found.pooler_output
    found = model(images, **options)
    for name in ("logits", "image_embeds"):
        if getattr(found, name, None) is not None:
            return getattr(found, name)
    if "attention" in ours.config.pooling:
        return found.pooler_output
    return found.last_hidden_state[:, 0] if ours.config.class_token else found.last_hidden_state.mean(1)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_the_model_computes_what_transformers_computes(transformers, tmp_path, name):
    theirs = build(transformers, name, **KINDS[name])
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load_model(tmp_path / "theirs")
    images = random_images((32, 32))
    assert_near(ours(images), outputs(theirs, ours, images))
    wide = random_images((48, 24))
    resampled = {} if "ino" in name.lower() else {"interpolate_pos_encoding": True}  # DINOv2 and DINOv3 always do
    assert_near(ours(wide), outputs(theirs, ours, wide, **resampled))


@torch.no_grad()
def test_siglip2_of_any_size_computes_what_transformers_computes(transformers, tmp_path):
    config = transformers.Siglip2VisionConfig(**{**SIZES, "num_patches": 16}, **MLP)
    theirs = randomise(transformers.Siglip2VisionModel(config))
    theirs.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    for height, width in ((32, 32), (48, 24)):
        images = random_images((height, width))
        patches = images.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)
        shapes = torch.tensor([[height // 8, width // 8]] * 2)
        mask = torch.ones(patches.shape[:2], dtype=torch.long)
        found = theirs(pixel_values=patches, pixel_attention_mask=mask, spatial_shapes=shapes).pooler_output
        assert_near(ours(images), found)


REFUSED = {
    "BeitForImageClassification": (dict(num_labels=7, **MLP), "model_type 'beit' is not supported"),
    "DeiTForImageClassification": (dict(num_labels=7, **MLP), "does not have|is incomplete"),
    "Aimv2VisionModel": (MLP, "model_type 'aimv2_vision_model' is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
@torch.no_grad()
def test_other_kinds_are_refused_by_name(transformers, tmp_path, name):
    options, message = REFUSED[name]
    build(transformers, name, **options).save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match=message):
        load_model(tmp_path)


def test_a_config_of_another_function_fails_the_check_of_convert(transformers, tmp_path):
    """The library is built from its own config.json, so that a wrong reading of it cannot confirm itself."""
    theirs = build(transformers, "ViTForImageClassification", num_labels=7, **MLP)
    theirs.save_pretrained(tmp_path / "theirs")
    with pytest.raises(
        WeightsError, match=r"source, run by the library of hf-vit: logits differ by .* nothing was written"
    ):
        convert(tmp_path / "theirs", tmp_path / "out", "vitkit", config={"heads": 6})
    assert not (tmp_path / "out").exists()


def test_weights_without_a_config_are_refused_and_the_missing_values_are_named(transformers, tmp_path):
    theirs = build(transformers, "ViTForImageClassification", num_labels=7, **MLP)
    theirs.save_pretrained(tmp_path / "theirs")
    save_file(load_file(tmp_path / "theirs" / "model.safetensors"), tmp_path / "bare.safetensors")
    with pytest.raises(WeightsError, match=r"the tensors do not show heads, mlp, norm_eps: add the config\.json"):
        load_model(tmp_path / "bare.safetensors")


@pytest.mark.parametrize("gated", [False, True])
@torch.no_grad()
def test_dinov3_files_as_published_by_its_authors(transformers, tmp_path, gated):
    """Their keys have a bias that a mask removes, the registers are storage tokens, and a gated MLP is w1, w2, w3."""
    options = dict(use_gated_mlp=True, hidden_act="silu") if gated else {}
    theirs = build(transformers, "DINOv3ViTModel", num_register_tokens=2, key_bias=True, **MLP, **options)
    theirs.save_pretrained(tmp_path / "theirs")
    state = load_file(tmp_path / "theirs" / "model.safetensors")
    published = {"rope_embed.periods": torch.ones(4), "mask_token": torch.zeros(1, 48),
                 "cls_token": state["embeddings.cls_token"], "storage_tokens": state["embeddings.register_tokens"],
                 "patch_embed.proj.weight": state["embeddings.patch_embeddings.weight"],
                 "patch_embed.proj.bias": state["embeddings.patch_embeddings.bias"],
                 "norm.weight": state["norm.weight"], "norm.bias": state["norm.bias"]}  # fmt: skip
    mlp = {"gate_proj": "w1", "up_proj": "w2", "down_proj": "w3"} if gated else {"up_proj": "fc1", "down_proj": "fc2"}
    names = {f"mlp.{a}": f"mlp.{b}" for a, b in mlp.items()} | {"attention.o_proj": "attn.proj"}
    for i in range(2):
        layer, block = f"layer.{i}.", f"blocks.{i}."
        for part in ("weight", "bias"):
            for a, b in ({"norm1": "norm1", "norm2": "norm2"} | names).items():
                published[f"{block}{b}.{part}"] = state[f"{layer}{a}.{part}"]
            qkv = [state[f"{layer}attention.{p}_proj.{part}"] for p in "qkv"]
            published[f"{block}attn.qkv.{part}"] = torch.cat(qkv)
        published[f"{block}attn.qkv.bias_mask"] = torch.cat([torch.ones(48), torch.zeros(48), torch.ones(48)])
        for n in (1, 2):
            published[f"{block}ls{n}.gamma"] = state[f"{layer}layer_scale{n}.lambda1"]
    for name, module in theirs.named_modules():
        if name.endswith("k_proj"):
            module.bias.zero_()
    torch.save(published, tmp_path / "dinov3.pth")
    ours = load_model(tmp_path / "dinov3.pth", config={"heads": 3})
    for size in ((32, 32), (48, 24)):
        images = random_images(size)
        assert_near(ours(images), theirs(images).last_hidden_state[:, 0])
