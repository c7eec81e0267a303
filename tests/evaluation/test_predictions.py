from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from vitkit.errors import DataError
from vitkit.evaluation import Predictions
from vitkit.evaluation.predictions import load_predictions, save_predictions


def test_saved_predictions_round_trip(tmp_path: Path) -> None:
    logits = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    saved = Predictions(
        logits, np.array([0, 1, 2, 0]), ["a", "b", "ç"], names=["1", "2", "3", "4"], skipped=["5: torn"]
    )
    save_predictions(tmp_path / "p.safetensors", saved)
    loaded = load_predictions(tmp_path / "p.safetensors")
    np.testing.assert_array_equal(loaded.logits, saved.logits)
    np.testing.assert_array_equal(loaded.labels, saved.labels)
    assert (loaded.class_names, loaded.names, loaded.skipped) == (saved.class_names, saved.names, saved.skipped)


@pytest.mark.parametrize("how", ["missing", "torn", "foreign"])
def test_a_file_without_predictions_is_refused(tmp_path: Path, how: str) -> None:
    path = tmp_path / "p.safetensors"
    if how == "torn":
        path.write_bytes(b"half")
    if how == "foreign":
        save_file({"w": np.ones(1)}, path, metadata={"class_names": "[]", "other": "[]"})
    with pytest.raises(DataError, match="cannot be read as predictions"):
        load_predictions(path)
