import itertools

import pytest
import torch
from torch import nn

from vitkit.errors import ConfigError
from vitkit.model import ViT, create_model
from vitkit.model.init import init_weights

from .small import OPTIONS, small_config


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(options):
    config = small_config(**options)
    one, same, other = (create_model(config, seed=seed).state_dict() for seed in (3, 3, 4))
    for name, tensor in one.items():
        assert torch.equal(tensor, same[name]), name
        assert tensor.isfinite().all()
        constant = tensor.unique().numel() == 1  # norms, biases, LayerScale
        assert torch.equal(tensor, other[name]) is constant, name


def test_a_seed_leaves_the_global_generator_untouched():
    torch.manual_seed(11)
    before = torch.get_rng_state()
    create_model(small_config(**OPTIONS["many"]), seed=0)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_the_global_generator_decides():
    models = []
    for seed in (11, 11, 12):
        torch.manual_seed(seed)
        models.append(create_model(small_config()).head.weight)
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])


def test_the_class_itself_takes_a_generator_and_gives_the_weights_of_create_model():
    config = small_config()
    direct = ViT(config, torch.Generator().manual_seed(5)).state_dict()
    for name, tensor in create_model(config, seed=5).state_dict().items():
        assert torch.equal(direct[name], tensor), name


def test_every_block_draws_its_own_weights():
    blocks = [block.state_dict() for block in create_model(small_config(depth=4, **OPTIONS["qk_norm"]), seed=0).blocks]
    for one, other in itertools.combinations(blocks, 2):
        for name in ("attn.qkv.weight", "attn.proj.weight", "mlp.fc1.weight", "mlp.fc2.weight"):
            assert not torch.equal(one[name], other[name])


def test_linear_layers_and_tokens_have_a_deviation_of_002_and_are_truncated():
    model = create_model(
        "vit_micro_patch4_32", seed=0, init="normal", class_token=True, registers=64, pooling="attention"
    )
    weights = {name: p for name, p in model.named_parameters() if p.ndim > 1 and "patch_embed" not in name}
    assert len(weights) > 25
    for name, weight in weights.items():
        if weight.numel() > 1000:
            assert weight.std().item() == pytest.approx(0.02, rel=0.05), name
            assert weight.mean().item() == pytest.approx(0, abs=0.001), name
        assert weight.abs().max() < 0.0456, name


def test_xavier_scales_linear_layers_by_width_and_leaves_tokens_normal():
    model = create_model("vit_micro_patch4_32", seed=0, init="xavier", class_token=True, registers=64)
    for block in model.blocks:
        for layer in (block.attn.proj, block.mlp.fc1, block.mlp.fc2):
            bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
            assert 0.99 * bound < layer.weight.abs().max() <= bound
            assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
        for matrix in block.attn.qkv.weight.chunk(3):  # three matrices in one: each as wide as if it stood alone
            bound = (6 / sum(matrix.shape)) ** 0.5
            assert matrix.std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
    for token in (model.reg_token, model.pos_embed):
        assert token.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("stem", [(), (32, 64)])
def test_patch_projection_and_stem_keep_the_variance_of_their_input(stem):
    model = create_model("vit_micro_patch4_32", seed=0, stem=stem)
    for module in model.patch_embed.modules():
        if isinstance(module, torch.nn.Conv2d):
            fan_in = module.weight[0].numel()
            assert module.weight.std().item() == pytest.approx(fan_in**-0.5, rel=0.05)
    if not stem:
        tokens = model.patch_embed(torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
        assert tokens.std().item() == pytest.approx(1, rel=0.05)


def test_norms_start_as_ones_biases_as_zeros_and_layer_scale_at_its_value():
    model = create_model(small_config(**OPTIONS["many"] | dict(qkv_bias=True, layer_scale=0.25)), seed=0)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        elif name.endswith("gamma"):
            assert (parameter == 0.25).all(), name


def test_meta_models_have_shapes_use_no_memory_and_draw_nothing():
    torch.manual_seed(11)
    before = torch.get_rng_state()
    model = create_model("vit_gigantic_patch14_224", device="meta")
    assert all(p.is_meta for p in model.parameters())
    assert sum(p.numel() for p in model.parameters()) > 1.8e9
    assert torch.equal(torch.get_rng_state(), before)


def test_a_meta_model_can_load_weights_later():
    config = small_config(**OPTIONS["many"])
    model = create_model(config, device="meta").to_empty(device="cpu")
    init_weights(model, torch.Generator().manual_seed(3))
    for name, tensor in create_model(config, seed=3).state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


def test_every_parameter_is_initialised_whatever_the_memory_contained(monkeypatch):
    empty = torch.empty_like

    def poisoned(*args, **kwargs):
        return empty(*args, **kwargs).fill_(float("nan")) if kwargs.get("device") == "cpu" else empty(*args, **kwargs)

    monkeypatch.setattr(torch, "empty_like", poisoned)  # what Module.to_empty allocates with
    probe = create_model(small_config(), device="meta").to_empty(device="cpu")
    assert all(p.isnan().all() for p in probe.parameters())  # the poison works
    for name, options in OPTIONS.items():
        model = create_model(small_config(**options), seed=0)
        assert all(p.isfinite().all() for p in model.parameters()), name


class _Gate(nn.Module):
    def __init__(self, value: float | None = None) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(3))
        if value is not None:
            self.init_weights = lambda generator: nn.init.constant_(self.gate, value)


def test_a_parameter_that_nothing_initialises_is_an_error_that_names_it():
    class Gated(ViT):
        def __init__(self, config, generator=None):
            super().__init__(config, generator)
            self.extra = _Gate()

    with pytest.raises(ConfigError, match=r"Gated: extra\.gate has no initial values: .*init_weights"):
        create_model(small_config(), model_class=Gated)


def test_a_module_initialises_its_own_parameters_by_a_method():
    class Gated(ViT):
        def __init__(self, config, generator=None):
            super().__init__(config, generator)
            self.extra = _Gate(0.25)

    model = create_model(small_config(), model_class=Gated, seed=0)
    assert isinstance(model, Gated)
    assert model.extra.gate.tolist() == [0.25] * 3


def test_a_subclass_keeps_the_buffers_that_it_computes():
    class Masked(ViT):
        def __init__(self, config, generator=None):
            super().__init__(config, generator)
            self.register_buffer("mask", torch.arange(4) % 2 == 0, persistent=False)

    assert create_model(small_config(), model_class=Masked).mask.tolist() == [True, False, True, False]
