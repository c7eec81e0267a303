import errno
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training.small import run
from vitkit.errors import UsageError
from vitkit.training.run_dir import is_restart, lock_run_dir

OTHER = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_folder_is_locked_while_another_process_trains_in_it(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UsageError, match=r"another process trains in .*: stop it, or choose another folder"):
            lock_run_dir(tmp_path, timeout=0.3)
    finally:
        other.kill()
        other.wait()
    with lock_run_dir(tmp_path, timeout=5):
        pass


@pytest.mark.parametrize(
    ("begun_by", "we_are", "ours"),
    [("job-1", "job-1", True), ("job-1", "job-2", False), ("", "job-1", False), ("", "", False), ("job-1", "", False)],
)
def test_only_the_job_that_started_a_run_resumes_it_automatically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun_by: str, we_are: str, ours: bool
) -> None:
    (tmp_path / "environment.json").write_text(json.dumps({"launch": begun_by}), encoding="utf-8")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", we_are)
    assert is_restart(tmp_path) is ours


def test_a_job_without_an_id_is_identified_by_its_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    (tmp_path / "environment.json").write_text(json.dumps({"launch": "none"}), encoding="utf-8")
    assert not is_restart(tmp_path)
    assert not is_restart(tmp_path / "absent")


def test_a_run_folder_is_never_overwritten(tmp_path: Path) -> None:
    run(tmp_path / "run")
    with pytest.raises(UsageError, match="already holds a run"):
        run(tmp_path / "run")


def test_a_run_is_not_resumed_with_another_recipe(tmp_path: Path) -> None:
    run(tmp_path / "run")
    with pytest.raises(UsageError, match="cannot resume: batch is 16, but"):
        run(tmp_path / "run", "batch=16", resume=True)


def test_a_run_is_not_resumed_on_changed_images(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    arrays = {f"{split}_images": generator.integers(0, 256, (64, 8, 8), dtype=np.uint8) for split in ("train", "val")}
    arrays |= {f"{split}_labels": np.arange(64) % 2 for split in ("train", "val")}
    np.savez(tmp_path / "data.npz", **arrays)
    run(tmp_path / "run", f"data={tmp_path / 'data.npz'}")
    run(tmp_path / "run", f"data={tmp_path / 'data.npz'}", resume=True)
    arrays["train_images"][0, 0, 0] ^= 1
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(UsageError, match="has changed since"):
        run(tmp_path / "run", f"data={tmp_path / 'data.npz'}", resume=True)


def test_a_file_system_without_locks_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.lockf", refuse)
    with lock_run_dir(tmp_path / "run", timeout=0):
        assert (tmp_path / "run").is_dir()
