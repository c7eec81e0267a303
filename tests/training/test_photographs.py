"""Photographs give the same weights from a parquet file and from a folder."""

import json
from pathlib import Path

import pytest

from vitkit.training import get_recipe
from vitkit.training.train import train

pq = pytest.importorskip("pyarrow.parquet", reason="pip install 'vitkit[data]'")

SHORT = ["model=vit_nano_patch4_32", "batch=32", "budget.epochs=0.5", "machine.precision=fp32", "machine.compile=off"]


@pytest.fixture(scope="module")
def packed(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a parquet file of every sixth photograph of the groceries."""
    table = pq.read_table(shared_data / "grocery.parquet")
    path = tmp_path_factory.mktemp("grocery") / "some.parquet"
    pq.write_table(table.take(list(range(0, len(table), 6))), path)
    return path


@pytest.fixture(scope="module")
def unpacked(packed: Path) -> Path:
    """Return a folder of class folders with the same images, under other names."""
    folder = packed.parent / "folder"
    for i, row in enumerate(pq.read_table(packed).to_pylist()):
        image = row["image"]["bytes"] if isinstance(row["image"], dict) else row["image"]
        place = folder / row["split"] / str(row["label"])
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{99_999 - i}.jpg").write_bytes(image)
    return folder


def test_parquet_and_folder_give_the_same_bits(packed: Path, unpacked: Path, tmp_path: Path) -> None:
    results = []
    for data in (packed, unpacked):
        recipe = get_recipe("scratch").override([*SHORT, f"data={data}"])
        results.append(train(recipe, tmp_path / data.name, quiet=True))
    first, second = results
    assert first.steps > 3
    assert first.weights_sha256 == second.weights_sha256
    assert first.val["top1"] == second.val["top1"]
    infos = [
        json.loads((tmp_path / d.name / "model" / "config.json").read_text(encoding="utf-8"))
        for d in (packed, unpacked)
    ]
    assert infos[0]["data"]["fingerprint"] == infos[1]["data"]["fingerprint"]
    assert infos[0]["class_names"] == infos[1]["class_names"]
