"""Files and byte ranges."""

import os
from pathlib import Path

import pytest

from vitkit.data.dataset import ReadFailure
from vitkit.data.shards.storage import ByteRange, find_files, read_ranges, stat_files
from vitkit.errors import DataError


def test_braces_name_every_file_whether_it_exists_or_not(tmp_path: Path) -> None:
    assert find_files(f"{tmp_path}/a-{{08..11}}.tar") == [f"{tmp_path}/a-{n}.tar" for n in ("08", "09", "10", "11")]
    with pytest.raises(DataError, match="names 1,000,000,000 files"):
        find_files("a-{000000000..999999999}.tar")


def test_ranges_that_cannot_be_read_are_failures(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"0123456789")
    wanted = [ByteRange(str(path), 2, 5), ByteRange(str(path), 8, 13), ByteRange(str(tmp_path / "b.bin"), 0, 1)]
    found = read_ranges(wanted)
    assert found[0] == b"234"
    assert found[1:] == [
        ReadFailure(str(path), "ends 3 bytes too early"),
        ReadFailure(str(tmp_path / "b.bin"), "is missing"),
    ]


def test_the_state_of_a_file_changes_with_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    (before,) = stat_files([str(path)])
    path.write_bytes(b"newer")
    os.utime(path, ns=(0, 12345))
    after, missing = stat_files([str(path), str(tmp_path / "b.bin")])
    assert before is not None
    assert after is not None
    assert (before.size, after.size, missing) == (3, 5, None)
    assert before.state != after.state
