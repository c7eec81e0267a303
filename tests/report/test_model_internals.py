"""Internals of the model."""

import re
from pathlib import Path

from vitkit.report.model_internals import model_section
from vitkit.report.run_assets import open_assets
from vitkit.report.run_record import read_run


def test_every_head_has_a_dot_and_every_filter_a_tile(runs: list[Path]) -> None:
    run = read_run(runs[0])
    assets = open_assets(run)
    assert assets.model is not None
    found = model_section(assets, run.evaluation)
    c = assets.model.config
    assert len(re.findall(r"<title>layer \d+, head \d+: [\d.]+ pixels</title>", found)) == c.depth * c.heads
    filters = found[found.index("Patch-embedding filters") : found.index("Position similarity")]
    assert filters.count("<img") == min(28, c.in_channels * c.patch_size[0] * c.patch_size[1])
    assert "Cosine similarity of position embeddings" in found or "rotary" in found or "sine-cosine" in found


def test_without_images_the_distances_are_not_measured(runs: list[Path]) -> None:
    assert "Not measured: the images are not available." in model_section(open_assets(read_run(runs[0])), None)
