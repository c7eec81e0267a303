import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.small import SMALL, recipe, uninterrupted_and_resumed
from vitkit.errors import ConfigError, Interrupted, UnknownNameError, UsageError
from vitkit.model import ViT, create_model
from vitkit.training.optim import make_optimizers, set_learning_rate
from vitkit.training.recipe import Optimizer
from vitkit.training.train import train


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


@pytest.mark.parametrize(
    "changes",
    [
        ("optimizer.name=sgd", "optimizer.lr=0.05"),
        ("optimizer.name=SGD", "optimizer.options={'momentum': 0.9, 'nesterov': True}"),
        ("optimizer.name=adafactor", "optimizer.lr=1e-2"),
        ("optimizer.name=nadam",),
        ("optimizer.name=rmsprop", "optimizer.options={'momentum': 0.5}"),
    ],
    ids=str,
)
def test_any_optimizer_of_torch_resumes_to_the_same_bits(tmp_path: Path, changes: tuple[str, ...]) -> None:
    uninterrupted, resumed = uninterrupted_and_resumed(recipe(*changes), tmp_path)
    assert resumed.weights_sha256 == uninterrupted.weights_sha256


class Counting(torch.optim.SGD):
    """Keeps numbers in its groups and state, and has two modes, as schedule-free optimizers do."""

    def __init__(self, groups: Any, lr: float) -> None:
        super().__init__(groups, lr=lr)
        self.modes: list[str] = []
        for group in self.param_groups:
            group["count"] = 0

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["count"] += 1
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p]["count"] = self.state[p].get("count", 0) + 1
                    p.data.mul_(1 - 1e-3 * self.state[p]["count"] * group["count"])
        super().step()

    def train(self) -> None:
        self.modes.append("train")

    def eval(self) -> None:
        self.modes.append("eval")


def test_an_optimizer_of_a_factory_keeps_its_numbers_and_is_told_the_mode(tmp_path: Path) -> None:
    made: list[Counting] = []

    def factory(groups: Any) -> Counting:
        made.append(Counting(groups, lr=0.05))
        return made[-1]

    def stop(step: int, metrics: Any, model: Any) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    whole = train(recipe(), tmp_path / "a", quiet=True, optimizer=factory)
    assert made[-1].modes[:3] == ["train", "eval", "train"]
    assert {group["weight_decay"] for group in made[-1].param_groups} == {0.0, 0.05}
    with pytest.raises(Interrupted):
        train(recipe(), tmp_path / "b", quiet=True, optimizer=factory, on_step=stop)
    resumed = train(recipe(), tmp_path / "b", quiet=True, optimizer=factory, resume=True)
    assert resumed.weights_sha256 == whole.weights_sha256
    with pytest.raises(UsageError, match=r"optimizer\.name is adamw, but .* was started with .*factory"):
        train(recipe(), tmp_path / "b", quiet=True, resume=True)


def test_an_unknown_optimizer_or_option_leaves_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown optimizer 'sdg'; did you mean 'sgd'"):
        train(recipe("optimizer.name=sdg"), tmp_path / "run", quiet=True)
    with pytest.raises(UnknownNameError, match="unknown optimizer 'lbfgs'"):
        train(recipe("optimizer.name=lbfgs"), tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match=r"optimizer\.options={'momentun': 0.9} do not fit SGD"):
        train(recipe("optimizer.name=sgd", "optimizer.options.momentun=0.9"), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_the_model_decides_which_parameters_are_decayed_and_the_layer_of_each() -> None:
    class Backwards(ViT):
        def layer_index(self, name: str) -> int:
            return self.config.depth + 1 - super().layer_index(name)

        def no_weight_decay(self) -> set[str]:
            return {"head.weight", *super().no_weight_decay()}

    model = create_model("vit_digits_patch2_8", model_class=Backwards)
    groups = make_optimizers(model, Optimizer(lr=1.0, layer_decay=0.5, weight_decay=0.1))[0].param_groups
    of = {id(p): group for group in groups for p in group["params"]}
    assert of[id(model.head.weight)]["base_lr"] == 0.5**5
    assert of[id(model.head.weight)]["weight_decay"] == 0.0
    assert of[id(model.patch_embed.proj.weight)]["base_lr"] == 1.0
