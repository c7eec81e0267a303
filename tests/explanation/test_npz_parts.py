from pathlib import Path

import numpy as np

from vitkit.explanation.npz_parts import NpzParts


def test_pieces_are_joined_along_their_first_axis(tmp_path: Path) -> None:
    numbers = NpzParts(tmp_path / "all.npz")
    maps, names = (
        np.random.default_rng(0).random((7, 3, 4), np.float32),
        np.array(["a", "bb", "ccc", "d", "e", "f", "ü"]),
    )
    for rows in (slice(0, 3), slice(3, 4), slice(4, 7)):
        numbers.append({"maps": maps[rows], "names": np.array(names[rows].tolist())})
        assert (tmp_path / ".all.npz.parts").is_dir()
    numbers.finish({"heads": np.arange(4.0)})
    with np.load(tmp_path / "all.npz") as found:
        assert np.array_equal(found["maps"], maps)
        assert found["maps"].dtype == np.float32
        assert np.array_equal(found["names"], names)
        assert np.array_equal(found["heads"], np.arange(4.0))
    assert [path.name for path in tmp_path.iterdir()] == ["all.npz"]


def test_pieces_of_a_killed_process_are_replaced(tmp_path: Path) -> None:
    killed = NpzParts(tmp_path / "all.npz")
    killed.append({"x": np.zeros(3)})
    killed.append({"x": np.zeros(3)})
    numbers = NpzParts(tmp_path / "all.npz")
    numbers.append({"x": np.ones(2)})
    numbers.finish({})
    assert np.load(tmp_path / "all.npz")["x"].tolist() == [1, 1]
    assert not (tmp_path / ".all.npz.parts").exists()
