import pytest
import torch
from torch.testing import assert_close

from vitkit.model.config import ViTConfig
from vitkit.model.norm import make_norm


@pytest.mark.parametrize("width", [None, 12])
def test_layer_norm_subtracts_the_mean_and_rms_norm_does_not(width):
    x = torch.randn(3, width or 16, generator=torch.Generator().manual_seed(0)) + 2
    for kind, centred in (("layer", x - x.mean(-1, keepdim=True)), ("rms", x)):
        norm = make_norm(ViTConfig(width=16, head_width=4, heads=2, norm=kind, norm_eps=0.1), width)
        expected = centred / (centred.square().mean(-1, keepdim=True) + 0.1).sqrt()
        assert_close(norm(x), expected)
        assert hasattr(norm, "bias") == (kind == "layer")
