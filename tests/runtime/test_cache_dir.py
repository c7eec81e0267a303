"""Which folders are caches, and what is removed from them first."""

import os
from pathlib import Path

import pytest

from vitkit.runtime.cache_dir import cache_folder, data_folder, prune


def test_folders_come_from_the_environment_before_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VITKIT_CACHE", "VITKIT_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/vitkit")
    assert data_folder(None) == Path("/x/vitkit/data")
    monkeypatch.setenv("VITKIT_CACHE", "~/c")
    assert cache_folder() == Path.home() / "c"
    monkeypatch.setenv("VITKIT_DATA", "/d")
    assert data_folder(None) == Path("/d")
    assert data_folder("/asked") == Path("/asked")


def test_prune_removes_the_least_recently_used_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for age, name in enumerate(("folder/part", "old", "new", "kept", ".writing.tmp")):
        (tmp_path / name).write_bytes(b"x" * 100)
        os.utime(tmp_path / name, (1000 + age, 1000 + age))
    os.utime(tmp_path / "folder", (1000, 1000))
    prune(tmp_path, keep=tmp_path / "kept", limit=400)
    assert {p.name for p in tmp_path.iterdir()} == {"folder", "old", "new", "kept", ".writing.tmp"}
    prune(tmp_path, keep=tmp_path / "kept", limit=250)
    assert {p.name for p in tmp_path.iterdir()} == {"new", "kept", ".writing.tmp"}
    prune(tmp_path, keep=tmp_path / "kept", limit=0)
    assert {p.name for p in tmp_path.iterdir()} == {"kept", ".writing.tmp"}
