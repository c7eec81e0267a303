import json
from pathlib import Path

import pytest

from tests.training.small import finetune, run
from vitkit.training.train import train


def test_a_run_writes_all_its_files(tmp_path: Path) -> None:
    result = run(tmp_path / "run")
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert {"recipe.json", "environment.json", "metrics.jsonl", "result.json", "checkpoints", "model"} <= names
    assert {"predictions-val.safetensors", "predictions-test.safetensors"} <= names
    saved = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    assert saved["weights_sha256"] == result.weights_sha256
    assert saved["val"]["n"] == 359
    assert saved["test"]["n"] == 359


def test_budget_choose_selects_the_best_or_the_last_weights(weights: Path, tmp_path: Path) -> None:
    ruin = ["optimizer.lr=0.3", "schedule.warmup=1", "optimizer.ema=0", "optimizer.layer_decay=1"]
    ruin += ["budget.validate_every=0.03"]  # after every step: the first are small, the last are not
    last = train(finetune(weights, *ruin), tmp_path / "last", quiet=True)
    best = train(finetune(weights, *ruin, "budget.choose=best"), tmp_path / "best", quiet=True)
    curve = [json.loads(line) for line in (tmp_path / "last" / "metrics.jsonl").open(encoding="utf-8")]
    validated = [line["val_top1"] for line in curve if "val_top1" in line]
    assert last.val["top1"] == pytest.approx(validated[-1])
    assert best.val["top1"] == pytest.approx(max(validated))
    assert max(validated) > validated[-1]
