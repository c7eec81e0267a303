"""The research examples run as they are, and those with a block and a loss of their own survive a kill."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

import vitkit

FOLDER = Path(__file__).parents[1] / "examples" / "research"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_are_there_and_short() -> None:
    names = {path.stem for path in EXAMPLES}
    assert names == {"contrastive", "custom_data", "k_fold", "parallel_block", "sparse_attention"}
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 60, path.name


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    assert load(path.stem).main(str(tmp_path / "run"))


@pytest.mark.parametrize("name", ["contrastive", "parallel_block"])
def test_a_killed_run_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """The first process is killed as soon as its checkpoint of a later step exists, the second one resumes."""
    module = load(name)
    whole = module.main(str(tmp_path / "whole"))
    script = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import {name}, vitkit; from vitkit.training.trainer import "
        f"Trainer; Trainer._save_is_due = lambda self: True; {name}.main({str(tmp_path / 'killed')!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (saved := list((tmp_path / "killed" / "checkpoints").glob("step-0000001*.json"))):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert saved
    assert not (tmp_path / "killed" / "result.json").exists()
    resumed = module.main(str(tmp_path / "killed"), resume=True)
    assert resumed.weights_sha256 == whole.weights_sha256
    assert vitkit.write_report(tmp_path / "killed").is_file()
