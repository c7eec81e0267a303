"""Images in shards make the batches of the folder, in any process and from any step."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.small_data import ROWS, write_folder
from vitkit.data.dataset import Split
from vitkit.data.decode_pipeline import CorruptionBudget
from vitkit.data.loader import BatchLoader, FileSource
from vitkit.data.open import open_data
from vitkit.data.preprocess import Preprocess
from vitkit.data.sampler import Sampler, shuffle_windows
from vitkit.data.shards import reader as shards
from vitkit.data.shards.writer import pack
from vitkit.data.transforms import Augment
from vitkit.errors import DataError

SEEN, CROPS = Preprocess(size=8), Augment(crop="resized", jitter=0.2)


@pytest.fixture(params=["tar", "parquet"])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Split, Split]:
    """(the folder's train, the shards')."""
    data = open_data(write_folder(tmp_path / "f", ROWS))
    pack(data, tmp_path / "s", to=request.param, shard_size=3000)
    return data.splits["train"], open_data(tmp_path / "s").splits["train"]


def make_loader(split: Split, **more: object) -> BatchLoader:
    plan = Sampler(len(split), 7, seed=2, windows=shuffle_windows(split))
    return BatchLoader(FileSource(split, SEEN, CROPS), split.labels, plan, **more)  # type: ignore[arg-type]


def test_shards_give_the_batches_of_the_folder(packed: tuple[Split, Split]) -> None:
    folder, sharded = (make_loader(split) for split in packed)
    for step in range(9):
        ours, theirs = (f.batch(step, (8, 8)) for f in (sharded, folder))
        assert torch.equal(ours.images, theirs.images)
        assert torch.equal(ours.labels, theirs.labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_windows_are_the_same_for_threads_and_processes_and_from_the_middle_of_a_shard(
    packed: tuple[Split, Split], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TAR_WINDOW": 1500, "TAR_CHUNK": 600, "PARQUET_WINDOW": 1500}.items():
        monkeypatch.setattr(shards, name, value)
    here = make_loader(packed[1])
    assert here.sampler.windows is not None
    assert not np.array_equal(here.sampler.at(0).index, make_loader(packed[0]).sampler.at(0).index)
    alone = [here.batch(step, (8, 8)) for step in range(8)]
    streamed = list(islice(here.stream(3, lambda step: (8, 8), workers), 5))
    for ours, theirs in zip(streamed, alone[3:], strict=True):
        assert torch.equal(ours.images, theirs.images)
        assert np.array_equal(ours.keys.index, theirs.keys.index)


def test_each_row_group_is_read_once_per_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for the windows; and what is held stays within its limit."""
    monkeypatch.setattr("vitkit.data.shards.writer.ROW_GROUP", 600)
    monkeypatch.setattr(shards, "PARQUET_WINDOW", 1800)
    monkeypatch.setattr(shards, "ROW_GROUPS", shards._RowGroupCache(3 * 1800))
    pack(open_data(write_folder(tmp_path / "f", ROWS)), tmp_path / "s", to="parquet", shard_size=4000)
    split, reads = open_data(tmp_path / "s").splits["train"], []
    read = shards.ShardImages._read_group
    monkeypatch.setattr(shards.ShardImages, "_read_group", lambda s, *part: (reads.append(part), read(s, *part))[1])
    plan = Sampler(len(split), 5, windows=shuffle_windows(split))
    for step in range(len(split) // 5):
        split.images.read_many(plan.at(step).index)
    images = split.images
    assert isinstance(images, shards.ShardImages)
    groups = sum(len(images.shards[s].groups) for s in np.unique(images.samples.shard))
    assert groups > 8
    assert len(reads) == groups
    assert sum(p.result().nbytes for p in shards.ROW_GROUPS.entries.values()) <= 3 * 1800


def test_a_sample_that_became_unreadable_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = open_data(write_folder(tmp_path / "f", ROWS))
    pack(data, tmp_path / "s", shard_size=10_240)
    split = open_data(tmp_path / "s").splits["train"]
    before = [make_loader(split).batch(step, (8, 8)) for step in range(5)]
    images = split.images
    assert isinstance(images, shards.ShardImages)
    path, place = Path(images.shards[images.samples.shard[17]].path), int(images.samples.offset[17])
    content = bytearray(path.read_bytes())
    content[place + 5] ^= 1
    path.write_bytes(content)
    lenient = make_loader(split, budget=CorruptionBudget(30, 0.05))
    for step, old in enumerate(before):
        new = lenient.batch(step, (8, 8))
        assert new.keys.index.tolist() == [18 if i == 17 else i for i in old.keys.index.tolist()]
        assert new.labels.tolist() == split.labels[new.keys.index].tolist()
        same = torch.from_numpy(old.keys.index != 17)
        assert torch.equal(new.images[same], old.images[same])
    assert [r.getMessage().split(": ")[0] for r in caplog.records] == ["unreadable, replaced by the next sample"]
    assert f"{split.images.name(17)}: its bytes in the shard have changed" in caplog.text
    strict = make_loader(split, budget=CorruptionBudget(30, 0.01))
    with pytest.raises(DataError, match="1 of 30 images cannot be read"):
        [strict.batch(step, (8, 8)) for step in range(5)]
