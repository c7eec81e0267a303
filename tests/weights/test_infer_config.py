import pytest
import torch
from safetensors.torch import save_file

from vitkit.errors import WeightsError
from vitkit.model import create_model
from vitkit.weights.infer_config import infer_config
from vitkit.weights.load import load_model

from .conftest import CONFIG, tensors

CHANGES = {
    "a missing block": (
        lambda t: [t.pop(k) for k in list(t) if k.startswith("blocks.0.")], r"is incomplete: blocks.0.attn"),
    "a block of a huge number": (
        lambda t: t.update({"blocks.9999.norm1.weight": torch.ones(64)}), "a block 9999 but no block 2"),
    "a wrong number of axes": (
        lambda t: t.update({"pos_embed": torch.ones(5)}), r"pos_embed is \(5,\), expected 3 axes"),
    "positions of no grid": (lambda t: t.update({"pos_embed": torch.ones(1, 7, 64)}), "7 rows is not a square grid"),
    "no patch": (lambda t: t.update({"patch_embed.proj.weight": torch.ones(64, 3, 0, 4)}), "a patch of 0×4"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_shapes_that_are_not_a_vit_are_named_in_the_error(tmp_path, refused, change, message):
    found = tensors()
    change(found)
    save_file(found, tmp_path / "vit.safetensors")
    refused(tmp_path / "vit.safetensors", message)


def test_a_number_of_heads_that_cannot_be_inferred_is_requested(tmp_path, refused):
    found = dict(create_model({**CONFIG, "width": 48, "head_width": 12, "heads": 4}).state_dict())
    save_file(found, tmp_path / "vit.safetensors")
    refused(tmp_path / "vit.safetensors", "the tensors do not show the number of heads")
    assert load_model(tmp_path / "vit.safetensors", config={"heads": 4}).config.head_width == 12
    with pytest.raises(WeightsError, match="heads=5 does not divide the 48 rows"):
        load_model(tmp_path / "vit.safetensors", config={"heads": 5})


def test_shapes_give_the_config_and_the_rest_is_listed_as_assumed():
    original = create_model({**CONFIG, "registers": 2, "layer_scale": 0.5, "mlp": "swiglu"}, device="meta")
    config, assumed = infer_config(original.state_dict(), {}, {"mlp": "gelu", "norm_eps": 1e-6}, "here", {64: 2})
    assert config == original.config.replace(layer_scale=1.0)
    assert assumed == [
        "norm_eps=1e-06 (fixed in this layout's code; the tensors do not show it)",
        "heads=2 (as in all published models of width 64; the tensors do not show it)",
    ]
