"""The faithfulness table."""

import re
from pathlib import Path

import pytest

from vitkit.report import faithfulness
from vitkit.report.run_assets import open_assets
from vitkit.report.run_record import read_run


def test_methods_are_ranked_and_compared_with_random_maps(page: str) -> None:
    part = page[page.index("Faithfulness of the maps") :]
    rows = re.findall(r"<tr><td>(\w+)</td><td data-sort='([-\d.]+)'", part)[:5]
    assert {name for name, _ in rows} == {"attention", "rollout", "gradient", "attribution", "random"}
    gains = [float(gain) for _, gain in rows]
    assert gains == sorted(gains, reverse=True)


def test_a_large_model_is_not_measured(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faithfulness, "MAX_MACS", 1.0)
    run = read_run(runs[0])
    assert run.evaluation is not None
    found = faithfulness.faithfulness_table(open_assets(run), run.evaluation)
    assert "vitkit explain RUN IMAGE … --out DIR --faithfulness" in found
