"""Learning curves."""

import html
import json
import re
from pathlib import Path

import numpy as np

from vitkit.report.curves import learning_curves, objective_metrics
from vitkit.report.run_record import RunRecord
from vitkit.training import Recipe


def test_the_curves_show_the_logged_values(runs: list[Path], page: str) -> None:
    charts = [json.loads(html.unescape(c)) for c in re.findall(r"data-chart='([^']+)'", page)]
    lines = {k["name"]: k["points"] for k in charts[0]["lines"]}
    recorded = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for name, key in (("training", "loss"), ("validation", "val_loss")):
        expected = [[m["epoch"], m[key]] for m in recorded if key in m]
        np.testing.assert_allclose(lines[name], expected, rtol=1e-5)


def test_metrics_of_an_objective_have_curves_of_their_own(tmp_path: Path) -> None:
    lines = ({"step": 5, "epoch": 0.5, "loss": 1.0, "spread": 2.0}, {"step": 9, "epoch": 1.0, "val_spread": 3.0})
    run = RunRecord(tmp_path, Recipe(), {}, lines, None)
    assert objective_metrics(run) == ["spread"]
    assert "spread" in learning_curves(run)
    assert objective_metrics(RunRecord(tmp_path, Recipe(), {}, ({"step": 1, "val_top1": 0.5, "lr": 1.0},), None)) == []
