"""Writes are atomic, and temporary files of killed writers are removed."""

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vitkit.atomic import remove_stale_temporaries, write_atomic
from vitkit.errors import WorkError

WRITER = """
import os, sys, time, pathlib
from vitkit import atomic
os.replace = lambda *names: (print("written", flush=True), time.sleep(60))  # held at the last instant before the rename
atomic.write_atomic(pathlib.Path(sys.argv[1]), b"x" * 1000)
"""


@pytest.fixture
def writer(tmp_path: Path):
    """Start a process that is stopped during a write."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "a.bin")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_temporaries_of_killed_writers_are_removed_and_those_of_live_ones_stay(tmp_path: Path, writer) -> None:
    (temporary,) = tmp_path.iterdir()
    assert remove_stale_temporaries(tmp_path) == []
    assert temporary.exists()
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert remove_stale_temporaries(tmp_path) == [temporary]
    assert not list(tmp_path.iterdir())


def test_files_of_other_programs_stay(tmp_path: Path) -> None:
    foreign = [".notes.tmp", "a.tmp", f".a.{platform.node()}-x.tmp", ".a.bin.12.part", "step-00000001.safetensors"]
    for name in foreign:
        (tmp_path / name).write_text("mine", encoding="utf-8")
    assert remove_stale_temporaries(tmp_path) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(foreign)


def test_temporaries_of_other_machines_stay_for_a_day(tmp_path: Path) -> None:
    fresh, old = (tmp_path / f".{name}.elsewhere-1.tmp" for name in ("fresh", "old"))
    for path in (fresh, old):
        path.write_text("", encoding="utf-8")
    os.utime(old, (time.time() - 90_000,) * 2)
    assert remove_stale_temporaries(tmp_path) == [old]


def test_a_missing_folder_has_no_temporaries(tmp_path: Path) -> None:
    assert remove_stale_temporaries(tmp_path / "none") == []


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"old")
    with pytest.raises(WorkError, match="cannot write"):
        write_atomic(tmp_path / "a" / "b", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"
