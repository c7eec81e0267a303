"""Linear probe and fine-tuning of pretrained weights, as short runs on the handwritten digits."""

import json
from pathlib import Path

import pytest
import torch

from tests.training.multi_process import train as train_processes
from tests.training.small import SMALL, finetune, uninterrupted_and_resumed
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError
from vitkit.model import ModelInfo, create_model
from vitkit.training import Recipe, get_recipe
from vitkit.training.init_from import adapt_to_classes
from vitkit.training.train import train
from vitkit.weights.load import load_model
from vitkit.weights.model_dir import save_model


def probe(weights: Path, *changes: str) -> Recipe:
    return get_recipe("probe").replace(data="digits", init=str(weights)).override(changes)


def test_a_probe_changes_only_the_classifier(weights: Path, tmp_path: Path) -> None:
    result = train(probe(weights), tmp_path / "run", quiet=True)
    before, after = load_model(weights).state_dict(), load_model(tmp_path / "run").state_dict()
    assert {k for k in after if not torch.equal(after[k], before.get(k, torch.empty(0)))} == {
        "head.weight",
        "head.bias",
    }
    assert result.steps == 0
    assert result.val["top1"] > 0.7, "features of five digits tell ten apart"
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open(encoding="utf-8")]
    assert 0.7 < next(line["probe_left_out_top1"] for line in lines if "probe_left_out_top1" in line) < 1
    model = load_model(tmp_path / "run")
    assert model.info.class_names == tuple("0123456789")
    assert model.config.pooling == "cls_mean", "the patches as well"
    narrow = train(probe(weights, "config.pooling=cls"), tmp_path / "narrow", quiet=True)
    assert load_model(tmp_path / "narrow").config.pooling == "cls"
    assert narrow.val["top1"] < result.val["top1"]


def test_resuming_a_probe_changes_nothing(weights: Path, tmp_path: Path) -> None:
    first = train(probe(weights), tmp_path / "run", quiet=True)
    assert train(probe(weights), tmp_path / "run", resume=True, quiet=True).weights_sha256 == first.weights_sha256


def test_fine_tuning_starts_from_the_fitted_classifier(weights: Path, tmp_path: Path) -> None:
    fitted = train(probe(weights, "preprocess.size=8"), tmp_path / "probe", quiet=True)
    barely = train(finetune(weights, "optimizer.lr=1e-12"), tmp_path / "tuned", quiet=True)
    assert barely.steps > 3
    assert barely.val["top1"] == pytest.approx(fitted.val["top1"], abs=0.01)
    zero = train(finetune(weights, "optimizer.lr=1e-12", "head=zero"), tmp_path / "zero", quiet=True)
    assert zero.val["top1"] < 0.3


def test_fine_tuning_from_a_probe_resumes_bit_for_bit(weights: Path, tmp_path: Path) -> None:
    uninterrupted, resumed = uninterrupted_and_resumed(finetune(weights), tmp_path)
    assert resumed.weights_sha256 == uninterrupted.weights_sha256


def test_weights_are_fine_tuned_at_another_size(weights: Path, tmp_path: Path) -> None:
    train(finetune(weights, "preprocess.size=12"), tmp_path / "run", quiet=True)
    assert load_model(tmp_path / "run").info.preprocess.size == (12, 12)
    with pytest.raises(ConfigError, match=r"preprocess\.size=\(10, 10\): must be a multiple of the weights' patch"):
        train(finetune(weights, "preprocess.size=10"), tmp_path / "odd", quiet=True)


def test_only_settings_without_tensors_may_be_changed_with_init(weights: Path) -> None:
    model = adapt_to_classes(load_model(weights), {"pooling": "cls_mean", "drop_path": 0.3}, list("0123456789"), (8, 8))
    assert model.head.weight.shape == (10, 32)
    assert model.blocks[-1].drop_path2.rate == 0.3
    same = adapt_to_classes(load_model(weights), {}, list("abcde"), (8, 8))
    assert torch.equal(same.head.weight, load_model(weights).head.weight)
    with pytest.raises(ConfigError, match=r"config\.depth cannot be changed together with init.*only pooling"):
        adapt_to_classes(load_model(weights), {"depth": 3}, list("abcde"), (8, 8))
    with pytest.raises(ConfigError, match=r"config\.image_size .*: set preprocess\.size instead"):
        adapt_to_classes(load_model(weights), {"image_size": 16}, list("abcde"), (8, 8))


def test_weights_with_a_distillation_token_are_probed(tmp_path: Path) -> None:

    model = create_model("vit_digits_patch2_8", seed=0, **SMALL | {"distillation": True, "patch_size": 2})
    model.info = ModelInfo(
        class_names=tuple("abcdefghij"), preprocess=Preprocess(size=8, channels=1, crop_fraction=1.0)
    )
    save_model(model, tmp_path / "weights")
    result = train(probe(tmp_path / "weights"), tmp_path / "run", quiet=True)
    assert result.val["top1"] > 0.5
    assert load_model(tmp_path / "run").config.pooling == "cls"


def test_a_probe_without_weights_is_refused(tmp_path: Path) -> None:
    recipe = get_recipe("probe").replace(data="digits", model="vit_digits_patch2_8")
    with pytest.raises(ConfigError, match="head=probe needs pretrained weights: name them in `init`"):
        train(recipe, tmp_path / "run", quiet=True)


def test_fine_tuning_in_two_processes_starts_from_one_probe(weights: Path, tmp_path: Path) -> None:
    random = "config={'drop_path': 0.1, 'dropout': 0.1, 'attention_dropout': 0.1}"
    changes = (f"init={weights}", "head=probe", random, "budget.epochs=0.3")
    one, two = (train_processes(tmp_path / str(n), n, *changes) for n in (1, 2))
    assert two["val"]["nll"] == pytest.approx(one["val"]["nll"], rel=5e-3)
