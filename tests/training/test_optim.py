import pytest
import torch

from tests.training.small import SMALL
from vitkit.model import create_model
from vitkit.training.optim import make_optimizers, set_learning_rate
from vitkit.training.recipe import Optimizer


def model(**changes: object) -> torch.nn.Module:
    return create_model(
        {**SMALL, "image_size": 8, "num_classes": 3, "registers": 2, "layer_scale": 0.1, **changes}, seed=0
    )


def groups_of(vit: torch.nn.Module, settings: Optimizer) -> dict[str, tuple[str, dict]]:
    """Return the optimizer and the group of each parameter, by name."""
    found = {}
    for each in make_optimizers(vit, settings):
        for group in each.param_groups:
            for p in group["params"]:
                name = next(n for n, q in vit.named_parameters() if q is p)
                assert name not in found, f"{name} is in two groups"
                found[name] = (type(each).__name__, group)
    return found


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_every_parameter_is_in_exactly_one_group(name: str) -> None:
    vit = model()
    assert groups_of(vit, Optimizer(name=name)).keys() == dict(vit.named_parameters()).keys()


def test_only_matrices_and_filters_decay() -> None:
    found = groups_of(model(), Optimizer(weight_decay=0.05))
    decayed = {n for n, (_, g) in found.items() if g["weight_decay"] == 0.05}
    kept = {n for n, (_, g) in found.items() if g["weight_decay"] == 0.0}
    assert decayed | kept == found.keys()
    assert {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "head.weight"} <= decayed
    assert {"cls_token", "reg_token", "pos_embed", "norm.weight", "blocks.1.ls1.gamma", "head.bias"} <= kept


def test_layer_decay_lowers_the_learning_rate_towards_the_input() -> None:
    found = groups_of(model(), Optimizer(lr=1.0, layer_decay=0.5))
    rates = {n: g["base_lr"] for n, (_, g) in found.items()}
    assert rates["head.weight"] == 1.0
    assert rates["blocks.1.mlp.fc1.weight"] == 0.5
    assert rates["blocks.0.norm1.bias"] == 0.25
    assert rates["patch_embed.proj.weight"] == rates["pos_embed"] == 0.125


def test_muon_updates_only_the_matrices_of_the_blocks() -> None:
    found = groups_of(model(), Optimizer(name="muon"))
    muon = {n for n, (kind, _) in found.items() if kind == "Muon"}
    assert muon == {n for n in found if n.startswith("blocks.") and n.endswith("weight") and "norm" not in n}


def test_muon_updates_the_filters_of_a_stem_except_the_first() -> None:
    found = groups_of(model(patch_size=4, stem=(6, 8)), Optimizer(name="muon"))
    muon = {n for n, (kind, _) in found.items() if kind == "Muon" and not n.startswith("blocks.")}
    assert muon == {"patch_embed.stem.2.weight", "patch_embed.proj.weight"}


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_a_few_steps_lower_the_loss(name: str) -> None:
    vit = model()
    images, labels = torch.randn(8, 3, 8, 8), torch.arange(8) % 3
    optimizers = make_optimizers(vit, Optimizer(name=name, lr=1e-2, muon_lr=1e-2))
    losses = []
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(vit(images), labels)
        loss.backward()
        for each in optimizers:
            each.step()
            each.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_the_learning_rate_of_every_group_is_scaled_from_its_base() -> None:
    optimizers = make_optimizers(model(), Optimizer(lr=1.0, layer_decay=0.5))
    set_learning_rate(optimizers, 0.1)
    for group in optimizers[0].param_groups:
        assert group["lr"] == pytest.approx(0.1 * group["base_lr"])
