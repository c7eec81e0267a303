"""Folders that vitkit 0.1.0 wrote still load, evaluate and resume. They stand in this directory as they were written.

Both are runs of the `digits` recipe with a model of width 16 over three epochs, in float32 on one thread, with EMA.
`v0.1-finished` went to its end; `v0.1-interrupted` was stopped by SIGINT in step 50 of 102.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitkit

HERE = Path(__file__).parent
FINISHED = HERE / "v0.1-finished"
INTERRUPTED = HERE / "v0.1-interrupted"

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    run = shutil.copytree(INTERRUPTED, tmp_path_factory.mktemp("runs") / "interrupted")
    recipe = vitkit.Recipe.from_dict(json.loads((run / "recipe.json").read_text(encoding="utf-8")))
    return vitkit.train(recipe, run, resume=True, quiet=True), run


def test_a_run_folder_loads_with_its_metadata_and_gives_the_same_logits() -> None:
    model = vitkit.load_model(FINISHED)
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = model(images).numpy()
    np.testing.assert_allclose(logits, np.load(HERE / "v0.1-logits.npy"), rtol=0, atol=1e-5)
    assert model.info is not None
    assert model.info.class_names == tuple("0123456789")


def test_a_run_folder_evaluates_to_the_accuracy_it_recorded() -> None:
    recorded = json.loads((FINISHED / "result.json").read_text(encoding="utf-8"))["test"]
    evaluation = vitkit.evaluate(FINISHED, "digits")
    assert evaluation.n == recorded["n"]
    assert evaluation.top1 == pytest.approx(recorded["top1"], abs=1 / recorded["n"])


def test_an_interrupted_run_resumes_at_its_step(resumed: tuple[Any, Path]) -> None:
    result, run = resumed
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line["step"] for line in lines if "step" in line]
    assert steps == sorted(steps), "a step of the first part was logged again"
    assert steps[-1] == 102
    assert result.epochs == json.loads((FINISHED / "result.json").read_text(encoding="utf-8"))["epochs"]


def test_a_resumed_run_ends_where_the_uninterrupted_one_did(resumed: tuple[Any, Path]) -> None:
    """Weights differ only by the rounding of another processor; on the same one they are equal bit for bit."""
    result, run = resumed
    before = vitkit.load_model(FINISHED).state_dict()
    after = vitkit.load_model(run).state_dict()
    assert result.weights_sha256
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=2e-3, msg=name)
