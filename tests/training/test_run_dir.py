import json
import subprocess
import sys
from pathlib import Path

import pytest

from vitkit.errors import UsageError
from vitkit.training.run_dir import is_restart, lock_run_dir

OTHER = """
import fcntl, sys, time
file = open(sys.argv[1], "a")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(60)
"""


def test_a_folder_in_which_another_process_trains_is_refused_until_that_one_is_gone(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UsageError, match=r"another process trains in .*: stop it, or choose another --out"):
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
def test_only_the_job_that_began_a_run_goes_on_with_it_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun_by: str, we_are: str, ours: bool
) -> None:
    (tmp_path / "environment.json").write_text(json.dumps({"launch": begun_by}))
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", we_are)
    assert is_restart(tmp_path) is ours


def test_a_job_without_a_name_is_known_by_its_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    (tmp_path / "environment.json").write_text(json.dumps({"launch": "none"}))
    assert not is_restart(tmp_path)
    assert not is_restart(tmp_path / "absent")
