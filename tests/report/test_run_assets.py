"""The data set and the model of a run."""

import json
import shutil
from pathlib import Path

from vitkit.report.run_assets import open_assets
from vitkit.report.run_record import read_run


def test_unreadable_images_are_skipped_as_in_training(photograph_run: Path) -> None:
    assets = open_assets(read_run(photograph_run))
    assert assets.data is not None
    assert assets.model is not None
    ((split, failure),) = assets.unreadable
    assert split in assets.data.splits
    assert failure.name.endswith("0.jpg")
    assert {k: len(v) for k, v in assets.data.splits.items()} == dict(assets.model.info.data["images"])
    assert assets.patch_size == assets.model.config.patch_size


def test_data_that_cannot_be_opened_leaves_the_model(runs: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(runs[0], copy)
    recipe = json.loads((copy / "recipe.json").read_text(encoding="utf-8"))
    (copy / "recipe.json").write_text(json.dumps(recipe | {"data": "gone.csv"}), encoding="utf-8")
    assets = open_assets(read_run(copy))
    assert assets.data is None
    assert "gone.csv" in assets.data_error
    assert assets.model is not None
