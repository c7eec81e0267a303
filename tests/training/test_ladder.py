"""k-NN, probe and fine-tuning on the handwritten digits, from weights of one epoch without a classifier."""

import dataclasses
import json
from pathlib import Path

import pytest

from tests.training.small import SMALL
from vitkit.cli.main import main
from vitkit.errors import Interrupted, UsageError
from vitkit.report.run_record import read_run
from vitkit.training import get_recipe, ladder
from vitkit.training.ladder import run_stages
from vitkit.training.train import train
from vitkit.weights.load import load_model
from vitkit.weights.model_dir import save_model

QUICK = ("budget.minutes=0", "budget.epochs=0.3", "batch=32", "augment.policy=none", "augment.flip=false")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("weights")
    recipe = get_recipe("digits").replace(config=SMALL)
    train(recipe.override(["budget.epochs=1", "seed=7"]), folder / "run", quiet=True)
    model = load_model(folder / "run")
    model.reset_classifier(0)
    return str(save_model(model, folder / "headless"))


def test_every_stage_is_measured_and_the_best_is_kept(weights: str, tmp_path: Path) -> None:
    said = []
    found = run_stages(
        "digits", weights, tmp_path / "out", changes=QUICK, quiet=True, on_stage=lambda r: said.append(r.name)
    )
    assert [r.name for r in found.stages] == said == ["knn", "probe", "finetune"]
    for stage in found.stages:
        low, high = stage.val["top1_interval"]
        assert 0.3 < low < stage.val["top1"] < high
        assert stage.test is not None
        assert stage.seconds > 0
        assert stage.core_seconds > 0
    best = max((r for r in found.stages if r.run), key=lambda r: r.val["top1"])
    assert load_model(tmp_path / "out").info.metrics["val_top1"] == pytest.approx(best.val["top1"], abs=1e-6)
    assert json.loads((tmp_path / "out" / "ladder.json").read_text(encoding="utf-8"))["best"] == found.best


def test_it_stops_without_time_or_room_for_improvement(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = run_stages("digits", weights, tmp_path / "late", minutes=0.5, quiet=True)
    assert [r.name for r in late.stages] == ["knn", "probe"]
    assert "too few to fine-tune" in late.stopped
    monkeypatch.setattr(ladder, "ENOUGH", 0.1)
    enough = run_stages("digits", weights, tmp_path / "enough", quiet=True)
    assert [r.name for r in enough.stages] == ["knn", "probe"]
    assert "the linear probe reaches" in enough.stopped


def test_finished_stages_are_kept_by_an_interrupted_and_resumed_ladder(
    weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ladder.train

    def stopped(recipe: object, out: Path, **named: object) -> object:
        if out.name == "finetune":
            raise Interrupted(2, str(out))
        return original(recipe, out, **named)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(ladder, "train", stopped)
        with pytest.raises(Interrupted):
            run_stages("digits", weights, out, changes=QUICK, quiet=True)
    saved = json.loads((out / "ladder.json").read_text(encoding="utf-8"))
    assert [r["name"] for r in saved["rungs"]] == ["knn", "probe"]
    assert load_model(out).config.num_classes == 10, "the probe, for now"
    with pytest.raises(UsageError, match="already holds a ladder: continue it with --resume"):
        run_stages("digits", weights, out, quiet=True)
    with pytest.raises(UsageError, match="was started with"):
        run_stages("digits", weights, out, seed=5, resume=True, quiet=True)
    again = run_stages("digits", weights, out, changes=QUICK, resume=True, quiet=True)
    assert [r.name for r in again.stages] == ["knn", "probe", "finetune"]
    assert dataclasses.asdict(again.stages[1]) == saved["rungs"][1], "not fitted again"


def test_the_command_prints_one_document(weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ladder", "digits", "--init", weights, "--out", str(tmp_path / "out"), "--minutes", "0.5", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert [r["name"] for r in found["rungs"]] == ["knn", "probe"]
    assert main(["ladder", "digits", "--init", weights, "--out", str(tmp_path / "x"), "--minutes", "0"]) == 2


def test_the_command_prints_a_table(weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ladder", "digits", "--init", weights, "--out", str(tmp_path / "out"), "--minutes", "0.5"]) == 0
    said = capsys.readouterr().out
    assert "probe" in said
    assert "95 % interval" in said
    assert "too few to fine-tune" in said


def test_a_stage_is_not_resumed_with_other_settings(tmp_path: Path) -> None:
    recipe = get_recipe("finetune").override(["optimizer.lr=1e-3"])
    (tmp_path / "finetune").mkdir()
    (tmp_path / "finetune" / "recipe.json").write_text(json.dumps(recipe.to_dict()), encoding="utf-8")
    with pytest.raises(UsageError, match="was started with other settings: omit --set"):
        ladder._run_training("finetune", recipe, tmp_path, True, True, ("optimizer.lr=2e-3",))


def test_all_stages_have_the_same_split(weights: str, tmp_path: Path) -> None:
    """Otherwise fine-tuning would be evaluated on images that its probe was fitted to."""
    found = run_stages("digits", weights, tmp_path, changes=(*QUICK, "val_fraction=0.3"), quiet=True)
    assert len({stage.val["n"] for stage in found.stages}) == 1
    recipes = [
        json.loads((tmp_path / name / "recipe.json").read_text(encoding="utf-8")) for name in ("probe", "finetune")
    ]
    assert [recipe["val_fraction"] for recipe in recipes] == [0.3, 0.3]
    assert recipes[1]["init"] == str(tmp_path / "probe")
    with pytest.raises(UsageError, match=r"report .*probe .*finetune"):
        read_run(tmp_path)
