import pytest
import torch
from safetensors.torch import load_file

import vitkit
from vitkit.errors import UnknownNameError, WeightsError
from vitkit.model import create_model
from vitkit.weights.convert import write_model

from .conftest import CONFIG

REFUSALS = {
    "registers": ("torchvision", dict(registers=2), "registers=2"),
    "LayerScale": ("npz", dict(layer_scale=0.1), "layer_scale=0.1"),
    "rotary positions": ("timm", dict(position="rotary"), "position='rotary'"),
    "a stem": ("timm", dict(stem=(4,)), r"stem=\(4,\)"),
    "mean pooling": ("hf", dict(pooling="mean"), "hf-vit cannot store a model with pooling='mean'"),
    "wide heads": ("hf", dict(head_width=16), "2 heads of 16 in a width of 64"),
    "RMSNorm": ("timm", dict(norm="rms"), "norm='rms'"),
    "a norm of patches": ("hf", dict(patch_norm=True), "hf-vit cannot store a model with patch_norm=True"),
    "no final norm": ("timm", dict(final_norm="none"), "final_norm='none'"),
    "features": ("torchvision", dict(num_classes=0), "num_classes=0"),
}


@pytest.mark.parametrize(("to", "options", "message"), REFUSALS.values(), ids=REFUSALS)
def test_features_that_a_layout_cannot_store_are_refused_by_name(tmp_path, to, options, message):
    model = create_model({**CONFIG, **options})
    with pytest.raises(WeightsError, match=message) as caught:
        write_model(model, tmp_path / "out", to)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UnknownNameError, match="unknown layout to write 'tim'"):
        write_model(model, tmp_path / "out", "tim")


@torch.no_grad()
def test_real_weights_are_unchanged_after_a_chain_of_all_layouts(deit, tmp_path):
    original = vitkit.load_model(deit[0], class_names=deit[1])
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    expected, model = original(images), original
    for to in ("hf", "torchvision", "npz", "timm"):
        written = write_model(model, tmp_path / f"vit.{'npz' if to == 'npz' else 'safetensors'}", to)
        model = vitkit.load_model(written.path, config={"norm_eps": 1e-6, "heads": 3, "mlp": "gelu"})
    assert torch.equal(model(images), expected)
    source = load_file(deit[0])
    assert all(torch.equal(tensor, source[key]) for key, tensor in model.state_dict().items())
