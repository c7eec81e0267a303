import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from vitkit.model.block import MLP, Block, LayerScale, SwiGLU
from vitkit.model.dropout import DropPath

from .small import small_config, small_model


def tokens(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layer_scale", [None, 0.5])
@torch.no_grad()
def test_a_block_adds_attention_then_mlp_each_of_a_normalised_input(layer_scale):
    block, z = small_model(layer_scale=layer_scale).blocks[1], tokens(2, 7, 16)
    gamma = (1.0, 1.0) if layer_scale is None else (block.ls1.gamma, block.ls2.gamma)
    middle = z + gamma[0] * block.attn(F.layer_norm(z, (16,), block.norm1.weight, block.norm1.bias, 1e-6))
    expected = middle + gamma[1] * block.mlp(F.layer_norm(middle, (16,), block.norm2.weight, block.norm2.bias, 1e-6))
    assert_close(block(z), expected)


@pytest.mark.parametrize(("kind", "approximate"), [("gelu", "none"), ("gelu_tanh", "tanh")])
def test_mlp_is_two_layers_around_a_gelu(kind, approximate):
    mlp, x = MLP(small_config(mlp=kind)), 3 * tokens(2, 7, 16)
    hidden = F.gelu(x @ mlp.fc1.weight.T + mlp.fc1.bias, approximate=approximate)
    assert_close(mlp(x), hidden @ mlp.fc2.weight.T + mlp.fc2.bias)


def test_the_two_gelus_differ():
    exact, fast = MLP(small_config()), MLP(small_config(mlp="gelu_tanh"))
    fast.load_state_dict(exact.state_dict())
    x = 3 * tokens(2, 7, 16)
    assert 1e-6 < (exact(x) - fast(x)).abs().max() < 1e-2


def test_swiglu_gates_the_second_half_with_the_silu_of_the_first():
    mlp, x = SwiGLU(small_config(mlp="swiglu", mlp_width=10)), tokens(2, 7, 16)
    assert mlp.fc1.weight.shape == (20, 16)
    gate = x @ mlp.fc1.weight[:10].T + mlp.fc1.bias[:10]
    value = x @ mlp.fc1.weight[10:].T + mlp.fc1.bias[10:]
    assert_close(mlp(x), (gate * torch.sigmoid(gate) * value) @ mlp.fc2.weight.T + mlp.fc2.bias)


def test_layer_scale_starts_at_its_value_and_multiplies_channels():
    scale, x = LayerScale(16, 0.25), tokens(2, 7, 16)
    assert_close(scale(x), 0.25 * x)
    with torch.no_grad():
        scale.gamma[3] = 2
    assert_close(scale(x)[..., 3], 2 * x[..., 3])


def test_drop_path_drops_whole_images_and_scales_the_others_up():
    torch.manual_seed(0)
    x = 1 + tokens(4000, 2, 3).abs()
    dropped = DropPath(0.3).train()(x)
    ratio = dropped / x
    per_image = ratio[:, 0, 0]
    assert_close(ratio, per_image[:, None, None].expand_as(ratio))
    kept = per_image > 0
    assert_close(per_image[kept], torch.full((int(kept.sum()),), 1 / 0.7))
    assert per_image[~kept].abs().max() == 0
    assert kept.float().mean().item() == pytest.approx(0.7, abs=0.03)
    assert per_image.mean().item() == pytest.approx(1, abs=0.05)  # the expectation is kept


def test_drop_path_is_off_in_eval_mode_and_at_rate_zero():
    x = tokens(4, 2, 3)
    assert DropPath(0.9).eval()(x) is x
    assert DropPath(0.0).train()(x) is x


def test_a_dropped_block_passes_its_input_through():
    torch.manual_seed(0)
    block, x = Block(small_config(), drop_path=0.999999).train(), tokens(3, 7, 16)
    assert_close(block(x), x, rtol=0, atol=0)


def test_drop_path_rises_linearly_over_the_depth():
    rates = [block.drop_path1.rate for block in small_model(depth=5, drop_path=0.4).blocks]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert small_model(depth=1, drop_path=0.4).blocks[0].drop_path1.rate == 0


@pytest.mark.parametrize("kind", ["gelu", "swiglu"])
def test_mlp_dropout_acts_only_in_training_and_keeps_the_mean(kind):
    torch.manual_seed(0)
    config = small_config(mlp=kind, dropout=0.2)
    mlp = (SwiGLU if kind == "swiglu" else MLP)(config).eval()
    x = tokens(1, 2, 16)
    with torch.no_grad():
        expected = mlp(x)
        drawn = torch.stack([mlp.train()(x) for _ in range(4000)])
    assert (drawn == 0).float().mean().item() == pytest.approx(0.2, abs=0.02)  # the second dropout shows directly
    assert (drawn.mean(dim=0) - expected).abs().max() < 0.1 * expected.abs().max()
