"""Output paths are checked before the work."""

from pathlib import Path

import pytest

from vitkit.cli.output_paths import check_figure_file, check_output_dir, check_output_file
from vitkit.errors import UsageError


def test_a_file_needs_an_existing_folder(tmp_path: Path) -> None:
    assert check_output_file(str(tmp_path / "new.npz")) == tmp_path / "new.npz"
    with pytest.raises(UsageError, match="is a folder; name a file in it"):
        check_output_file(str(tmp_path))
    with pytest.raises(UsageError, match=r"--csv .*: folder .* does not exist; create it or choose another --csv"):
        check_output_file(str(tmp_path / "no" / "new.csv"), "--csv")


def test_a_folder_can_be_created_at_any_depth_but_not_below_a_file(tmp_path: Path) -> None:
    assert check_output_dir(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists(), "only checked"
    (tmp_path / "file").touch()
    for name in ("file", "file/below"):
        with pytest.raises(UsageError, match="file is a file; choose another --out"):
            check_output_dir(str(tmp_path / name))


def test_a_folder_that_is_not_writable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # tests may run as root, who may write everywhere
    for check in (check_output_file, check_output_dir):
        with pytest.raises(UsageError, match="is not writable; choose another --out"):
            check(str(tmp_path / "new"))


def test_a_figure_needs_a_known_suffix(tmp_path: Path) -> None:
    assert check_figure_file(str(tmp_path / "a.PNG"), "--plot") == tmp_path / "a.PNG"
    with pytest.raises(UsageError, match=r"--plot .*a\.txt: expected a file name that ends in \.png, \.svg or \.pdf"):
        check_figure_file(str(tmp_path / "a.txt"), "--plot")
