import json

import pytest

from vitkit.cli.main import main


def test_the_loader_is_compared_with_pillow_and_a_training_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "vit_digits_patch2_8", "--load", "digits", "--rounds", "1", "--batch", "64", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(rows) == ["loader, 0 workers", "loader, 1 workers", "loader, 2 workers", "pillow", "training step"]
    assert rows["loader, 0 workers"]["images_per_s"] > rows["training step"]["images_per_s"]
