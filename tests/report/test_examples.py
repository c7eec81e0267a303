"""Example images with their maps."""

import dataclasses
import re
from pathlib import Path

import numpy as np

from vitkit.report.examples import read_examples
from vitkit.report.run_assets import open_assets
from vitkit.report.run_record import read_run


def test_mistakes_have_a_map_of_the_prediction_and_of_the_label(runs: list[Path], page: str) -> None:
    evaluation = read_run(runs[0]).evaluation
    assert evaluation is not None
    part = page[page.index("<section id='most-confident-mistakes'") : page.index("<section id='explanations'")]
    shown = re.findall(r"✗ predicted (\d), label (\d)</span>, confidence ([\d.]+)%<br>(\S+?)</figcaption>", part)
    expected = [(m.predicted, m.label, f"{100 * m.score:.1f}", m.path) for m in evaluation.mistakes[:12]]
    assert shown == expected
    assert part.count("<img") == 3 * len(expected) + 1  # and the colour scale


def test_examples_are_found_by_name_and_missing_ones_are_skipped(runs: list[Path]) -> None:
    run = read_run(runs[0])
    assets, evaluation = open_assets(run), run.evaluation
    assert evaluation is not None
    assert assets.model is not None
    found = read_examples(assets, evaluation, [3, 0])
    assert found is not None
    names = evaluation.predictions.names
    assert names is not None
    assert list(found.names) == [names[3], names[0]]
    np.testing.assert_allclose(assets.model(found.batch).detach(), evaluation.predictions.logits[[3, 0]], atol=0.05)
    renamed = dataclasses.replace(evaluation.predictions, names=["gone", *names[1:]])
    some = read_examples(assets, dataclasses.replace(evaluation, predictions=renamed), [0, 3])
    assert some is not None
    assert list(some.names) == [names[3]]
