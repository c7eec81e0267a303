from pathlib import Path

import pytest

from vitkit.cli.demo import MARKER, _replace_earlier_demo


def test_only_a_folder_that_a_demo_made_is_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    _replace_earlier_demo(folder)
    assert (folder / MARKER).exists()
    (folder / "result.json").touch()
    _replace_earlier_demo(folder)
    assert [path.name for path in folder.iterdir()] == [MARKER]
    (folder / MARKER).unlink()
    (folder / "mine.txt").touch()
    _replace_earlier_demo(folder)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["runs/demo", "elsewhere"])
def test_parents_are_created(tmp_path: Path, name: str) -> None:
    _replace_earlier_demo(tmp_path / name)
    assert (tmp_path / name / MARKER).exists()
