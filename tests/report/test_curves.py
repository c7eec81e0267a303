"""Learning curves."""

import html
import json
import re
from pathlib import Path

import numpy as np


def test_the_curves_show_the_logged_values(runs: list[Path], page: str) -> None:
    charts = [json.loads(html.unescape(c)) for c in re.findall(r"data-chart='([^']+)'", page)]
    lines = {k["name"]: k["points"] for k in charts[0]["lines"]}
    recorded = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    for name, key in (("training", "loss"), ("validation", "val_loss")):
        expected = [[m["epoch"], m[key]] for m in recorded if key in m]
        np.testing.assert_allclose(lines[name], expected, rtol=1e-5)
