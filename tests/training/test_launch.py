"""`vitkit train --processes 2`: real processes, their signals and errors."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vitkit.training.checkpoint import find_latest
from vitkit.training.launch import launch

SETTINGS = ["batch=32", "config.depth=1", "machine.precision=fp32", "machine.compile=off", "machine.threads=1"]


def command(out: Path, *words: str, changes: tuple[str, ...] = ()) -> list[str]:
    given = [word for change in (*SETTINGS, *changes) for word in ("--set", change)]
    return [sys.executable, "-m", "vitkit", "train", "digits", "--out", str(out), "--json", *words, *given]


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    two, one = (run(*command(tmp_path / n, "--epochs", "0.2", "--processes", n)) for n in ("2", "1"))
    assert (two.returncode, one.returncode) == (0, 0), two.stderr + one.stderr
    found, expected = json.loads(two.stdout), json.loads(one.stdout)  # one document: only the first process prints
    assert found["steps"] == expected["steps"] > 3
    assert found["val"]["nll"] == pytest.approx(expected["val"]["nll"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_command_saves_and_stops_all_its_processes(tmp_path: Path, number: int) -> None:
    out = tmp_path / "run"
    long = command(out, "--epochs", "500", "--processes", "2", changes=("keep.every_minutes=60",))
    parent = subprocess.Popen(long, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = out / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text(encoding="utf-8").count("\n") > 3):
        assert time.monotonic() < deadline
        assert parent.poll() is None, parent.communicate()[1]
        time.sleep(0.2)
    parent.send_signal(number)
    _, output = parent.communicate(timeout=60)
    assert parent.returncode == 128 + number, output
    assert output.count("saved") == 1, output
    assert find_latest(out / "checkpoints")  # finds intact checkpoints only


def test_when_one_process_fails_the_others_are_stopped() -> None:
    script = "import os, sys, time; time.sleep(60) if os.environ['RANK'] == '0' else sys.exit(3)"
    began = time.monotonic()
    assert launch([sys.executable, "-c", script], 2) == 3
    assert time.monotonic() - began < 20


def test_each_process_gets_its_rank_and_its_share_of_the_cores(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, sys; output = [os.environ[k] for k in ('LOCAL_RANK', 'WORLD_SIZE', 'OMP_NUM_THREADS')]; "
        "pathlib.Path(sys.argv[1], os.environ['RANK']).write_text(' '.join(output))"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_NUM_THREADS", raising=False)
        assert launch([sys.executable, "-c", script, str(tmp_path)], 2) == 0
    share = max(1, (os.cpu_count() or 1) // 2)
    assert [(tmp_path / str(i)).read_text(encoding="utf-8") for i in range(2)] == [f"{i} 2 {share}" for i in range(2)]


@pytest.mark.parametrize("count", ["0", "-1", "two"])
def test_an_invalid_number_of_processes_is_refused(tmp_path: Path, count: str) -> None:
    done = run(*command(tmp_path / "run", "--processes", count))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_an_error_in_the_data_is_printed_once(tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "vitkit", "train", "nosuch", "--out", str(tmp_path / "run"), "--processes", "2")
    assert done.returncode == 2
    assert done.stderr.startswith("vitkit: there is no file or folder 'nosuch'")
    assert len(done.stderr.splitlines()) == 1


def test_an_error_of_another_rank_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import os, time; time.sleep(60) if os.environ['RANK'] == '0' else [][0]"
    assert launch([sys.executable, "-c", script], 2) == 1
    assert "IndexError" in capsys.readouterr().err
