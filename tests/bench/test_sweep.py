from pathlib import Path

import pytest

from tests.bench import TINY
from vitkit.bench.sweep import plot_sweep, run_sweep
from vitkit.model import create_model


def test_a_sweep_has_rows_for_every_point() -> None:
    points = [(batch_size, size) for batch_size in (1, 2) for size in (0, 16)]
    found = run_sweep(create_model(TINY), points, ["tutorial"], train=True, rounds=1, memory=False)
    rows = [(row["batch"], row["image_size"]) for row in found.rows if row["name"] == "tutorial fp32"]
    assert rows == [(1, 32), (1, 16), (2, 32), (2, 16)]
    assert not found.missing


@pytest.mark.parametrize(("axis", "label"), [("batch", "batch size"), ("image_size", "image size, pixels")])
def test_a_plot_has_a_line_per_competitor_over_the_size_that_varies(axis: str, label: str, tmp_path: Path) -> None:
    speeds = {"a": [10.0, 80.0], "b": [7.0, 30.0]}
    rows = [
        {"batch": 4, "image_size": 32, axis: x, "name": name, "images_per_s": speed[i]}
        for i, x in enumerate((16, 64))
        for name, speed in speeds.items()
    ]
    (axes,) = plot_sweep(rows, tmp_path / "x.png").axes
    assert {str(line.get_label()): list(line.get_ydata()) for line in axes.lines} == speeds
    assert [list(line.get_xdata()) for line in axes.lines] == [[16, 64]] * 2
    assert (axes.get_xlabel(), axes.get_ylabel()) == (label, "images per second")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "64"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    assert len({line.get_linestyle() for line in axes.lines}) == 2, "lines must differ without colour"
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
