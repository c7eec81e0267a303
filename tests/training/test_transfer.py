"""From given weights: probe, fine-tuning and distillation, as short real runs on the handwritten digits."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from tests.training.small import SMALL, train_until, whole_and_resumed
from vitkit.errors import ConfigError, UsageError
from vitkit.model import create_model
from vitkit.training import Recipe, get_recipe, train
from vitkit.training.init_from import adapt_to_classes
from vitkit.training.loss import DistillationOutputs, distillation_loss, supervised_loss, to_teacher_targets
from vitkit.training.recipe import Distill
from vitkit.weights.load import load_model

SHORT = ["budget.epochs=0.2", "budget.minutes=0", "budget.validate_every=0.1", "batch=32"]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the digits below five, to start from."""
    import numpy as np
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("five")
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 8, 8) * 15).astype(np.uint8)[labels < 5]
    few = labels[labels < 5]
    np.savez(folder / "five.npz", train_images=images[:700], train_labels=few[:700], test_images=images[700:],
             test_labels=few[700:], class_names=np.array(list("abcde")))  # fmt: skip
    recipe = dataclasses.replace(get_recipe("digits"), data=str(folder / "five.npz"), config=SMALL)
    train(recipe.override(["budget.epochs=4", "budget.validate_every=4"]), folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows all digits, and better than its students."""
    folder = tmp_path_factory.mktemp("teacher")
    recipe = dataclasses.replace(get_recipe("digits"), config={**SMALL, "width": 32, "drop_path": 0.0})
    train(
        recipe.override(["budget.epochs=6", "budget.validate_every=6", "optimizer.lr=4e-3"]), folder / "run", quiet=True
    )
    return folder / "run"


def probe(weights: Path, *changes: str) -> Recipe:
    return dataclasses.replace(get_recipe("probe"), data="digits", init=str(weights)).override(changes)


def finetune(weights: Path, *changes: str) -> Recipe:
    recipe = dataclasses.replace(get_recipe("finetune"), data="digits", init=str(weights))
    return recipe.override([*SHORT, "augment.flip=false", "augment.policy=none", *changes])


def student(teacher: Path, *changes: str) -> Recipe:
    recipe = dataclasses.replace(get_recipe("digits"), config={**SMALL, "dropout": 0.1})
    return recipe.override([*SHORT, f"distill.teacher={teacher}", *changes])


def test_a_probe_changes_the_classifier_only_and_is_a_run_like_any_other(weights: Path, tmp_path: Path) -> None:
    result = train(probe(weights), tmp_path / "run", quiet=True)
    before, after = load_model(weights).state_dict(), load_model(tmp_path / "run").state_dict()
    assert {k for k in after if not torch.equal(after[k], before.get(k, torch.empty(0)))} == {
        "head.weight",
        "head.bias",
    }
    assert result.steps == 0
    assert result.val["top1"] > 0.7, "features of five digits tell ten apart"
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
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


def test_fine_tuning_with_a_fitted_classifier_resumes_bit_for_bit(weights: Path, tmp_path: Path) -> None:
    whole, resumed = whole_and_resumed(finetune(weights), tmp_path)
    assert resumed.weights_sha256 == whole.weights_sha256


def test_the_last_weights_are_kept_where_validation_is_not_to_choose(weights: Path, tmp_path: Path) -> None:
    ruin = ["optimizer.lr=0.3", "schedule.warmup=1", "optimizer.ema=0", "optimizer.layer_decay=1"]
    ruin += ["budget.validate_every=0.03"]  # after every step: the first are small, the last are not
    last = train(finetune(weights, *ruin), tmp_path / "last", quiet=True)
    best = train(finetune(weights, *ruin, "budget.choose=best"), tmp_path / "best", quiet=True)
    curve = [json.loads(line) for line in (tmp_path / "last" / "metrics.jsonl").open()]
    validated = [line["val_top1"] for line in curve if "val_top1" in line]
    assert last.val["top1"] == pytest.approx(validated[-1])
    assert best.val["top1"] == pytest.approx(max(validated))
    assert max(validated) > validated[-1]


def test_weights_are_fine_tuned_at_another_size(weights: Path, tmp_path: Path) -> None:
    train(finetune(weights, "preprocess.size=12"), tmp_path / "run", quiet=True)
    assert load_model(tmp_path / "run").info.preprocess.size == (12, 12)
    with pytest.raises(ConfigError, match=r"preprocess\.size=\(10, 10\): must be a multiple of the weights' patch"):
        train(finetune(weights, "preprocess.size=10"), tmp_path / "odd", quiet=True)


def test_only_what_no_tensor_hangs_on_may_be_changed_with_the_weights(weights: Path) -> None:
    model = adapt_to_classes(load_model(weights), {"pooling": "cls_mean", "drop_path": 0.3}, list("0123456789"), (8, 8))
    assert model.head.weight.shape == (10, 32)
    assert model.blocks[-1].drop_path.rate == 0.3
    same = adapt_to_classes(load_model(weights), {}, list("abcde"), (8, 8))
    assert torch.equal(same.head.weight, load_model(weights).head.weight)
    with pytest.raises(ConfigError, match=r"config\.depth cannot be changed together with --init.*free are pooling"):
        adapt_to_classes(load_model(weights), {"depth": 3}, list("abcde"), (8, 8))


def test_weights_with_a_distillation_token_are_probed(tmp_path: Path) -> None:
    from vitkit.data.preprocess import Preprocess
    from vitkit.model import ModelInfo
    from vitkit.weights.model_dir import save_model

    model = create_model("vit_digits_patch2_8", seed=0, **SMALL | {"distillation": True, "patch_size": 2})
    model.info = ModelInfo(
        class_names=tuple("abcdefghij"), preprocess=Preprocess(size=8, channels=1, crop_fraction=1.0)
    )
    save_model(model, tmp_path / "weights")
    result = train(probe(tmp_path / "weights"), tmp_path / "run", quiet=True)
    assert result.val["top1"] > 0.5
    assert load_model(tmp_path / "run").config.pooling == "cls"


def test_a_probe_without_weights_is_refused(tmp_path: Path) -> None:
    recipe = dataclasses.replace(get_recipe("probe"), data="digits", model="vit_digits_patch2_8")
    with pytest.raises(ConfigError, match="name them with --init"):
        train(recipe, tmp_path / "run", quiet=True)


@pytest.mark.parametrize("changes", [("distill.kind=hard",), ("distill.sees=original",), ("config.distillation=true",)])
def test_a_distillation_resumes_bit_for_bit(teacher: Path, tmp_path: Path, changes: tuple[str, ...]) -> None:
    whole, resumed = whole_and_resumed(student(teacher, *changes), tmp_path)
    assert resumed.weights_sha256 == whole.weights_sha256


def test_a_run_is_not_gone_on_with_under_another_teacher(teacher: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(teacher / "model", tmp_path / "teacher")
    recipe = student(tmp_path / "teacher")
    train_until(2, recipe, tmp_path / "run")
    model = load_model(tmp_path / "teacher")
    with torch.no_grad():
        model.head.bias[0] += 1
    from vitkit.weights.model_dir import save_model

    save_model(model, tmp_path / "teacher")
    with pytest.raises(UsageError, match=r"distill is .*: use the same"):
        train(recipe, tmp_path / "run", resume=True, quiet=True)


def test_a_teacher_of_other_classes_is_refused(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not know 10 of the 10 classes, such as '0': fine-tune it"):
        train(student(weights), tmp_path / "run", quiet=True)


def test_a_teacher_alone_teaches(teacher: Path, tmp_path: Path) -> None:
    """With labels out of the loss, what the student learns it has from the teacher."""
    alone = ["distill.weight=1", "budget.epochs=4", "budget.validate_every=4", "optimizer.lr=3e-3"]
    assert train(student(teacher, *alone), tmp_path / "run", quiet=True).val["top1"] > 0.6


def model_and_batch(**changes: object) -> tuple[DistillationOutputs, torch.Tensor, torch.Tensor]:
    model = create_model("vit_tiny_patch16_224", seed=0, **{**SMALL, "image_size": 8, "num_classes": 4, **changes})
    return DistillationOutputs(model.eval()), torch.randn(6, 3, 8, 8), torch.eye(4)[torch.arange(6) % 4]


def test_a_student_that_answers_as_its_teacher_has_nothing_to_learn_from_it() -> None:
    heads, images, targets = model_and_batch()
    d = Distill(weight=1.0, temperature=3.0)
    answers = to_teacher_targets(heads.model(images).detach(), d)
    loss, _ = distillation_loss(heads, images, targets, answers, d)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    other, _ = distillation_loss(heads, images, targets, answers.roll(1, dims=1), d)
    assert other.item() > 1e-3


def test_without_weight_the_loss_is_that_of_the_labels() -> None:
    heads, images, targets = model_and_batch()
    answers = torch.full((6, 4), 0.25)
    costs = torch.tensor([1.0, 2.0, 0.5, 1.0])
    for d in (Distill(weight=0.0), Distill(weight=0.0, kind="hard")):
        loss, hits = distillation_loss(heads, images, targets, answers, d, costs)
        expected, expected_hits = supervised_loss(heads.model, images, targets, costs)
        torch.testing.assert_close(loss, expected)
        assert hits == expected_hits


def test_soft_distillation_is_the_divergence_at_the_temperature_by_its_square() -> None:
    heads, images, targets = model_and_batch()
    logits = torch.randn(6, 4)
    p, q = (logits / 2).softmax(dim=1), (heads.model(images) / 2).softmax(dim=1)
    expected = 4 * (p * (p / q).log()).sum(dim=1).mean()
    d = Distill(weight=1.0, temperature=2.0)
    torch.testing.assert_close(distillation_loss(heads, images, targets, to_teacher_targets(logits, d), d)[0], expected)


def test_a_distillation_token_learns_from_the_teacher_and_the_class_token_from_the_labels() -> None:
    heads, images, targets = model_and_batch(distillation=True)
    d = Distill(weight=0.5, kind="hard")
    answers = to_teacher_targets(torch.randn(6, 4), d)
    labels, taught = heads.model.forward_heads(images)
    expected = (torch.nn.functional.cross_entropy(labels, targets.argmax(1)) +
                torch.nn.functional.cross_entropy(taught, answers.argmax(1))) / 2  # fmt: skip
    torch.testing.assert_close(distillation_loss(heads, images, targets, answers, d)[0], expected)


def test_a_teacher_sees_the_students_pixels_in_its_own_way(teacher: Path, tmp_path: Path) -> None:
    """Other normalisation, other order of the classes: the same answers for the same pixels."""
    import numpy as np

    from vitkit.data.dataset import ArrayImages, Split
    from vitkit.training.distillation import make_teacher

    model = load_model(teacher)
    own = model.info.preprocess
    names = list(reversed(model.info.class_names))
    other = own.replace(mean=(0.1,), std=(0.9,))
    pixels = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    split = Split(ArrayImages(pixels[:, 0].numpy(), "made"), np.zeros(5, dtype=np.int64))
    d = Distill(teacher="it", temperature=1.0)
    asked = make_teacher(d, model, names, other, split, torch.device("cpu"))
    with torch.no_grad():
        expected = model(own.normalize(pixels)).softmax(dim=1).flip(1)
    torch.testing.assert_close(asked.targets(other.normalize(pixels)), expected, rtol=1e-3, atol=1e-5)
    remembers = make_teacher(dataclasses.replace(d, sees="original"), model, names, other, split, torch.device("cpu"))
    assert remembers.cached_logits is not None
    torch.testing.assert_close(remembers.cached_logits.softmax(dim=1), expected, rtol=1e-3, atol=1e-5)


def test_two_processes_distil_as_one_does(teacher: Path, tmp_path: Path) -> None:
    from tests.training.test_distributed import train as run

    changes = (f"distill.teacher={teacher}", "config.distillation=true", "budget.epochs=0.5")
    one, two = (run(tmp_path / str(n), n, *changes) for n in (1, 2))
    assert one["steps"] == two["steps"]
    assert two["val"]["nll"] == pytest.approx(one["val"]["nll"], rel=2e-3)


def test_two_processes_fine_tune_from_one_fitted_classifier(weights: Path, tmp_path: Path) -> None:
    from tests.training.test_distributed import train as run

    still = "config={'drop_path': 0.0, 'dropout': 0.0}"  # what is dropped is drawn per process
    changes = (f"init={weights}", "head=probe", still, "budget.epochs=0.3")
    one, two = (run(tmp_path / str(n), n, *changes) for n in (1, 2))
    assert two["val"]["nll"] == pytest.approx(one["val"]["nll"], rel=5e-3)
