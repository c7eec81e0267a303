import pytest
import torch
from safetensors.torch import save_file

from vitkit.errors import WeightsError
from vitkit.model import create_model
from vitkit.weights.convert import write_model
from vitkit.weights.layouts import TARGETS
from vitkit.weights.load import load_model, load_with_report
from vitkit.weights.state_dict import build_model, hash_weights

from .conftest import CONFIG, tensors

CHANGES = {
    "a missing key": (
        lambda t: t.pop("blocks.1.norm2.bias"), r"is incomplete: 1 tensors are missing, the first is blocks.1.norm2"),
    "no patches": (lambda t: t.pop("patch_embed.proj.weight"), "no known Vision Transformer layout"),
    "an extra key": (
        lambda t: t.update({"lora.a": torch.ones(2)}), r"contains 1 tensors that a timm ViT does not have: lora.a"),
    "a wrong shape": (
        lambda t: t.update({"blocks.1.mlp.fc1.bias": torch.ones(7)}),
        r"blocks.1.mlp.fc1.bias is \(7,\), expected \(32,\)"),
    "NaN": (lambda t: t["norm.weight"].fill_(float("nan")), "norm.weight contains NaN"),
    "infinity": (lambda t: t["head.bias"].fill_(float("inf")), "head.bias contains NaN or infinite"),
    "whole numbers": (lambda t: t.update({"head.bias": torch.ones(3, dtype=torch.int8)}), "head.bias is torch.int8"),
    "nothing": (lambda t: t.clear(), "no known Vision Transformer layout"),
    "the same twice": (
        lambda t: t.update({"module.norm.weight": torch.ones(64)}),
        "norm.weight and .*norm.weight, two names of the same tensor"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_tensors_that_do_not_fit_are_named_in_the_error(tmp_path, refused, change, message):
    found = tensors()
    change(found)
    save_file(found, tmp_path / "vit.safetensors")
    refused(tmp_path / "vit.safetensors", message)


def test_every_writable_layout_round_trips_bit_exactly(tmp_path):
    for to, layouts in TARGETS.items():
        for layout in layouts:
            options = {k: v[0] for k, v in layout.supports.items() if not isinstance(v[0], type | range)}
            options |= {"layer_scale": 1.0} if layout.supports.get("layer_scale") == (float,) else {}
            options |= {"pooling": "cls_mean"} if layout.name.startswith("hf-dinov2") else {}
            options |= {"registers": 2} if layout.supports.get("registers", (0,))[0] != 0 else {}
            config = {**CONFIG, "mlp_width": 128, **options, "norm_eps": 1e-6}
            original = create_model(config, seed=1)
            written = write_model(original, tmp_path / layout.name, to)
            assert written.layout is layout
            suffix = "npz" if to == "npz" else "safetensors"
            given = {} if to in ("timm", "hf") else {"image_size": 8, "heads": 2}
            found, report = load_with_report(tmp_path / layout.name / f"model.{suffix}", config=given)
            assert report.layout in (layout.name, "timm")
            for key, tensor in found.state_dict().items():
                assert torch.equal(tensor, original.state_dict()[key]), (layout.name, key)


@torch.no_grad()
def test_sincos_positions_are_written_as_a_table(tmp_path):
    model = create_model({**CONFIG, "position": "sincos"}, seed=0).eval()
    write_model(model, tmp_path / "hf", "hf")
    images = torch.randn(2, 3, 8, 8)
    assert torch.allclose(load_model(tmp_path / "hf")(images), model(images), atol=1e-5)


def test_weights_hash_alike_only_if_names_types_shapes_and_values_are_equal():
    one, same, other = (create_model(CONFIG, seed=seed) for seed in (0, 0, 1))
    assert hash_weights(one) == hash_weights(same) != hash_weights(other)
    other.load_state_dict({**one.state_dict(), "head.bias": torch.ones(3)})
    assert hash_weights(one) != hash_weights(other)
    assert hash_weights(one, without=("head.",)) == hash_weights(other, without=("head.",))
    assert hash_weights(one.bfloat16()) != hash_weights(same)


def test_absent_tensors_are_zero_only_if_the_layout_says_so():
    state = tensors()
    bias = state.pop("head.bias")
    model, filled = build_model(create_model(CONFIG).config, state, "here", [("^head.bias", "no bias")])
    assert filled == {"head.bias": "no bias"}
    assert torch.equal(model.head.bias, torch.zeros_like(bias))
    with pytest.raises(WeightsError, match="here is incomplete: 1 tensors are missing, the first is head"):
        build_model(create_model(CONFIG).config, state, "here")
