import pytest
import torch
from torch import nn

from tests.training.small import SMALL
from vitkit.model import create_model
from vitkit.training.ema import EMA
from vitkit.training.muon import Muon, orthogonalize
from vitkit.training.optim import make_optimizers, set_learning_rate
from vitkit.training.recipe import Optimizer


def model(**changes: object) -> torch.nn.Module:
    return create_model(
        {**SMALL, "image_size": 8, "num_classes": 3, "registers": 2, "layer_scale": 0.1, **changes}, seed=0
    )


def groups_of(vit: torch.nn.Module, settings: Optimizer) -> dict[str, tuple[str, dict]]:
    """Parameter name → (optimizer, its group)."""
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


def test_layer_decay_lowers_the_rate_towards_the_input() -> None:
    found = groups_of(model(), Optimizer(lr=1.0, layer_decay=0.5))
    rates = {n: g["base_lr"] for n, (_, g) in found.items()}
    assert rates["head.weight"] == 1.0
    assert rates["blocks.1.mlp.fc1.weight"] == 0.5
    assert rates["blocks.0.norm1.bias"] == 0.25
    assert rates["patch_embed.proj.weight"] == rates["pos_embed"] == 0.125


def test_muon_takes_the_matrices_of_the_blocks_and_nothing_else() -> None:
    found = groups_of(model(), Optimizer(name="muon"))
    muon = {n for n, (kind, _) in found.items() if kind == "Muon"}
    assert muon == {n for n in found if n.startswith("blocks.") and n.endswith("weight") and "norm" not in n}


def test_muon_takes_the_filters_behind_a_stems_first_convolution() -> None:
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


def test_the_rate_of_every_group_follows_its_own_base() -> None:
    optimizers = make_optimizers(model(), Optimizer(lr=1.0, layer_decay=0.5))
    set_learning_rate(optimizers, 0.1)
    for group in optimizers[0].param_groups:
        assert group["lr"] == pytest.approx(0.1 * group["base_lr"])


def test_the_average_is_the_exponential_mean_of_the_weights() -> None:
    vit = torch.nn.Linear(2, 1)
    average = EMA(vit)
    expected = vit.weight.detach().clone()
    for step in range(5):
        with torch.no_grad():
            vit.weight.fill_(float(step))
        average.update(vit, 0.9)
        expected = 0.9 * expected + 0.1 * step
    torch.testing.assert_close(average.state_dict()["weight"], expected)


def test_swapping_twice_restores_both() -> None:
    vit = torch.nn.Linear(2, 1)
    average = EMA(vit)
    torch.nn.init.ones_(vit.weight)
    before = average.state_dict()["weight"].clone()
    average.swap(vit)
    torch.testing.assert_close(vit.weight.detach(), before)
    average.swap(vit)
    torch.testing.assert_close(vit.weight.detach(), torch.ones(1, 2))


@pytest.mark.parametrize("shape", [(48, 144), (144, 48), (64, 64)])
def test_muon_is_torchs_muon_but_for_its_rounding(shape: tuple[int, int]) -> None:
    """torch iterates in bfloat16: its updates carry about 1 % of noise, ours must not differ by more."""
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for _ in range(3)]
    ours, theirs = ([nn.Parameter(t.clone()) for t in start] for _ in range(2))
    mine = Muon([{"params": ours, "weight_decay": 0.1}], lr=0.05)
    reference = torch.optim.Muon(theirs, lr=0.05, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(4):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(shape, generator=generator)
            b.grad = a.grad.clone()
        mine.step()
        reference.step()
    for a, b, s in zip(ours, theirs, start, strict=True):
        assert (a - b).norm() < 0.03 * (b - s).norm()


def test_muon_on_several_cores_has_the_same_bits() -> None:
    drawn = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=drawn) for shape in [(32, 96), (96, 32), (32, 96), (8, 3, 3, 3), (24, 24)]]
    found = []
    for cores in (1, 2):
        parameters = [nn.Parameter(each.clone()) for each in start]
        muon = Muon([{"params": parameters[:3]}, {"params": parameters[3:], "weight_decay": 0.1}], lr=0.05, cores=cores)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = parameter.detach().cos()
            muon.step()
        found.append([p.detach() for p in parameters])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(found[0], start, strict=True))


@pytest.mark.parametrize("shape", [(8, 3, 3, 3), (16, 8, 1, 1)])  # wide, and tall
def test_muon_takes_filters_for_the_rows_of_a_matrix(shape: tuple[int, ...]) -> None:
    filters, gradient = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    ours, flat = nn.Parameter(filters.clone()), nn.Parameter(filters.flatten(1).clone())
    for parameter in (ours, flat):
        parameter.grad = gradient.view_as(parameter)
        Muon([{"params": [parameter], "weight_decay": 0.1}], lr=0.05).step()
    torch.testing.assert_close(ours.flatten(1), flat)
    assert not torch.equal(ours, filters)


def test_an_orthogonalized_matrix_turns_without_stretching() -> None:
    singular = torch.linalg.svdvals(orthogonalize(torch.randn(2, 32, 96, generator=torch.Generator().manual_seed(0))))
    assert singular.min() > 0.6
    assert singular.max() < 1.3
