"""The command `vitkit pack`."""

import json
from pathlib import Path

import pytest

from tests.data.small_data import ROWS, write_folder
from vitkit.cli.main import main
from vitkit.cli.pack import parse_shard_size
from vitkit.errors import UsageError


def files_below(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_the_command_packs_and_unpacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "photos", ROWS)
    shards, back = str(tmp_path / "shards"), str(tmp_path / "back")
    assert main(["pack", str(folder), shards, "--shard-size", "20kB", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["images"] == len(ROWS)
    assert result["shards"] == len(list(Path(shards).glob("*.tar")))
    assert main(["pack", shards, back, "--to", "folder"]) == 0
    assert f"{len(ROWS)} images" in capsys.readouterr().out
    assert files_below(Path(back)) == files_below(folder)
    assert main(["pack", str(folder), shards, "--shard-size", "much"]) == 2
    assert "expected a size such as 256MB" in capsys.readouterr().err


def test_shard_sizes_are_parsed() -> None:
    assert [parse_shard_size(t) for t in ("256MB", "1GiB", "1.5 kb", "7")] == [256_000_000, 2**30, 1500, 7]
    for wrong in ("", "0", "MB", "-1MB", "1TB"):
        with pytest.raises(UsageError):
            parse_shard_size(wrong)
