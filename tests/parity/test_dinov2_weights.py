"""The published weights of a ViT-S/14 with registers, in DINOv2's own layout, on real photographs."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from vitkit.weights.load import load_model

from .compare import assert_near


@pytest.fixture(scope="module")
def published(shared_data, request):
    """Return the path of the weights, which a script of the shared data downloads once."""
    script = shared_data / "get-dinov2-small"
    if not script.is_file():
        pytest.skip(f"no {script.name} in {shared_data}")
    path = request.config.cache.mkdir("dinov2") / "dinov2_small.pth"
    if not path.is_file():
        done = subprocess.run([sys.executable, script, path], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{script.name} could not download the weights: {done.stderr.strip().splitlines()[-1]}")
    return path


def reference(transformers, path):
    """Return transformers' model with these weights, renamed here by hand."""
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=518, patch_size=14,
        num_register_tokens=4, mlp_ratio=4,
    )  # fmt: skip
    model = transformers.Dinov2WithRegistersModel(config)
    state = torch.load(path, map_location="cpu", weights_only=True)
    embeddings = {"cls_token": "cls_token", "pos_embed": "position_embeddings", "register_tokens": "register_tokens",
                  "mask_token": "mask_token", "patch_embed.proj.weight": "patch_embeddings.projection.weight",
                  "patch_embed.proj.bias": "patch_embeddings.projection.bias"}  # fmt: skip
    renamed = {f"embeddings.{theirs}": state.pop(name) for name, theirs in embeddings.items()}
    renamed |= {f"layernorm.{p}": state.pop(f"norm.{p}") for p in ("weight", "bias")}
    for name, tensor in state.items():
        name = name.replace("blocks.", "encoder.layer.").replace(".gamma", ".lambda1").replace(".ls", ".layer_scale")
        if ".attn.qkv." in name:
            for part, piece in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                renamed[name.replace("attn.qkv", f"attention.attention.{part}")] = piece.clone()
        else:
            renamed[name.replace("attn.proj", "attention.output.dense")] = tensor
    aliases = {key.replace("attention.attention.query", "attention.q_proj").replace(
        "attention.attention.key", "attention.k_proj").replace("attention.attention.value", "attention.v_proj").replace(
        "attention.output.dense", "attention.o_proj"): key for key in renamed}  # fmt: skip
    own = model.state_dict()
    model.load_state_dict({key: renamed[key if key in renamed else aliases[key]] for key in own})
    return model.eval()


@torch.no_grad()
def test_real_weights_agree_with_transformers_on_photographs_of_three_sizes(transformers, published):
    data = pytest.importorskip("skimage.data", reason="pip install 'vitkit[dev]'")
    ours, theirs = load_model(published), reference(transformers, published)
    assert ours.config.heads == 6
    assert ours.config.registers == 4
    for height, width in ((224, 224), (518, 518), (224, 350)):
        photographs = [Image.fromarray(picture).resize((width, height)) for picture in (data.chelsea(), data.coffee())]
        pixels = torch.from_numpy(np.stack([np.asarray(p) for p in photographs])).permute(0, 3, 1, 2)
        images = ours.info.preprocess.normalize(pixels)
        assert_near(ours.forward_features(images), theirs(images).last_hidden_state)
