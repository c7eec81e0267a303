"""Recipes are compared over seeds: in pairs where seeds and images match, otherwise by Welch's interval."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from vitkit.atomic import write_json
from vitkit.cli.main import main
from vitkit.errors import UsageError
from vitkit.evaluation.metrics import Predictions
from vitkit.evaluation.predictions import save_predictions
from vitkit.report.compare_runs import compare_runs
from vitkit.training import Recipe


def write_run(folder: Path, seed: int, right: int, n: int = 100, finished: bool = True, **changes: object) -> Path:
    """Write what `vitkit train` leaves of a run in which `right` of n test images were classified correctly."""
    folder.mkdir(parents=True)
    recipe = Recipe(data="digits", model="vit_digits_patch2_8", seed=seed)
    write_json(folder / "recipe.json", dataclasses.replace(recipe, **changes).to_dict())
    if finished:
        labels = np.arange(n) % 2
        logits = np.stack([labels == 0, labels == 1], axis=1).astype(np.float32)
        logits[right:] = logits[right:, ::-1]
        names = [f"test[{i}]" for i in range(n)]
        save_predictions(folder / "predictions-test.safetensors", Predictions(logits, labels, ["a", "b"], names))
        measured = {"n": n, "top1": right / n, "top1_interval": [0.0, 1.0], "ece": 0.1, "nll": 0.5}
        result = {"run": str(folder), "val": measured, "test": measured, "epochs": 1.0, "seconds": 1.0, "parameters": 9}
        write_json(folder / "result.json", result)
    return folder


def runs(folder: Path, name: str, counts: dict[int, int], **options: object) -> list[Path]:
    return [write_run(folder / f"{name}{seed}", seed, right, **options) for seed, right in counts.items()]


def test_runs_of_the_same_seeds_and_images_are_compared_in_pairs(tmp_path: Path) -> None:
    a, b = runs(tmp_path, "a", {0: 60, 1: 70, 2: 80}), runs(tmp_path, "b", {2: 83, 0: 62, 1: 72}, batch=64)
    found = compare_runs(a, b)
    assert found.paired
    assert found.seeds_a == found.seeds_b == [0, 1, 2]
    assert found.difference == pytest.approx(0.07 / 3)
    half = 4.3027 * np.std([0.02, 0.02, 0.03], ddof=1) / np.sqrt(3)  # Student's t of 2 degrees of freedom
    assert found.interval == pytest.approx((0.07 / 3 - half, 0.07 / 3 + half), abs=1e-5)
    assert "recipe new is better than recipe old" in found.summary("old", "new")
    assert json.loads(json.dumps(found.to_dict()))["interval"] == list(found.interval)


def test_other_seeds_or_other_images_give_the_unpaired_interval(tmp_path: Path) -> None:
    a, b = runs(tmp_path, "a", {0: 60, 1: 70, 2: 80}), runs(tmp_path, "b", {3: 83, 4: 62, 5: 72})
    found = compare_runs(a, b)
    assert not found.paired
    scipy = pytest.importorskip("scipy.stats")
    test = scipy.ttest_ind([0.83, 0.62, 0.72], [0.6, 0.7, 0.8], equal_var=False)
    assert 3 < test.df < 4
    wider = scipy.t.ppf(0.975, 3) / scipy.t.ppf(0.975, test.df)  # the degrees of freedom are rounded down
    half = wider * (test.confidence_interval().high - found.difference)
    assert found.interval == pytest.approx((found.difference - half, found.difference + half))
    assert "no difference between A and B is shown" in found.summary()
    other = runs(tmp_path, "c", {0: 120, 1: 140, 2: 160}, n=200)
    assert not compare_runs(a, other).paired


def test_what_cannot_be_compared_is_an_error(tmp_path: Path) -> None:
    a = runs(tmp_path, "a", {0: 60, 1: 70})
    with pytest.raises(UsageError, match="b has 1 run: a recipe needs at least 2 seeds"):
        compare_runs(a, a[:1])
    with pytest.raises(UsageError, match="differ in more than their seed"):
        compare_runs(a, [*runs(tmp_path, "b", {0: 60}), *runs(tmp_path, "c", {1: 60}, batch=64)])
    with pytest.raises(UsageError, match="two runs of the same seed"):
        compare_runs(a, [*runs(tmp_path, "d", {0: 60}), *runs(tmp_path, "e", {0: 60})])
    with pytest.raises(UsageError, match="is not finished: resume it first"):
        compare_runs(a, runs(tmp_path, "f", {0: 60, 1: 70}, finished=False))


def test_the_command_compares_two_recipes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = (runs(tmp_path, name, {0: 60, 1: 70}, batch=n) for name, n in (("a", 32), ("b", 64)))
    words = ["report", *map(str, a), "--against", *map(str, b), "--out", "two.html"]
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["recipes"]["paired"]
    assert answer["recipes"]["difference"] == 0
    assert main(words) == 0
    assert "no difference" in capsys.readouterr().out
    page = (tmp_path / "two.html").read_text(encoding="utf-8")
    assert "The two recipes" in page
    assert "A–B" in page
    assert "not of the recipes" in page


def test_a_path_instead_of_a_list_is_one_run(tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", 0, 60), write_run(tmp_path / "b", 0, 70)
    with pytest.raises(UsageError, match="a has 1 run: a recipe needs at least 2 seeds"):
        compare_runs(str(a), [b])
