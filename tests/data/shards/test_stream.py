"""Shards of vitkit and of others: found, read, and fed as a folder of the same images would be."""

import io
import json
import tarfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.test_dataset import CLASSES, ROWS, columns_of, contents, write_folder, write_parquet
from vitkit.data.dataset import ImageSubset, RawImage, Split
from vitkit.data.loader import BatchLoader, FileSource
from vitkit.data.open import open_data
from vitkit.data.pipeline import CorruptionBudget
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.data.readers import parquet
from vitkit.data.sampler import Sampler, shuffle_windows
from vitkit.data.shards import reader as shards
from vitkit.data.shards.storage import FileStat, find_files
from vitkit.data.shards.tar_index import index_tar
from vitkit.data.shards.writer import pack
from vitkit.data.transforms import Augment
from vitkit.errors import DataError, MissingExtraError

SEEN, CROPS = Preprocess(size=8), Augment(crop="resized", jitter=0.2)

TRAIN = [row for row in ROWS if row[0] == "train"]


def write_tar(path: Path, rows: list[tuple[str, str, bytes]], beside: Callable[[str], dict[str, bytes]]) -> Path:
    """`beside`: class → the files that stand beside an image of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for i, (_, label, content) in enumerate(rows):
            for ending, value in {"png": content, **beside(label)}.items():
                member = tarfile.TarInfo(f"./some/{i:04}.{ending}")
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
    return path


LABELLED: dict[str, Callable[[str], dict[str, bytes]]] = {
    "cls": lambda label: {"cls": label.encode()},
    "json": lambda label: {"json": json.dumps({"label": label, "width": 8}).encode()},
    "txt": lambda label: {"txt": f"{label}\n".encode()},
    "cls before txt": lambda label: {"txt": b"a caption", "cls": label.encode(), "mask.npy": b"\0" * 100},
}


@pytest.mark.parametrize("kind", LABELLED)
def test_a_webdataset_is_the_folder_of_the_same_images(kind: str, tmp_path: Path) -> None:
    shuffled = [ROWS[i] for i in np.random.default_rng(1).permutation(len(ROWS))]
    for split in ("train", "val"):
        rows = [row for row in shuffled if row[0] == split]
        for number, part in enumerate((rows[:5], rows[5:])):  # uneven
            write_tar(tmp_path / "web" / f"{split}-{number:03}.tar", part, LABELLED[kind])
    folder, web = open_data(write_folder(tmp_path / "f", ROWS)), open_data(tmp_path / "web")
    assert contents(web) == contents(folder)
    assert web.fingerprint == folder.fingerprint
    assert contents(open_data(tmp_path / "web")) == contents(folder)  # from what was kept of the scan


def test_numbers_in_cls_files_are_class_indices(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", TRAIN, lambda label: {"cls": str(CLASSES.index(label) + 1).encode()})
    data = open_data(tmp_path / "a.tar", val_fraction=0)
    assert list(data.class_names) == ["0", "1", "2", "3"]
    assert not data.has_class_names
    assert data.splits["train"].labels.tolist() == [1] * 10 + [2] * 10 + [3] * 10


def test_a_tar_that_has_changed_is_read_anew(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", TRAIN, LABELLED["cls"])
    assert len(open_data(path, val_fraction=0).splits["train"]) == 30
    write_tar(path, TRAIN[:20], LABELLED["cls"])
    assert len(open_data(path, val_fraction=0).splits["train"]) == 20


def test_a_tar_that_was_cut_anywhere_is_known_to_be(tmp_path: Path) -> None:
    """Also between two of its files, where Python's reader sees a good end."""
    whole = write_tar(tmp_path / "a.tar", TRAIN[:3], LABELLED["cls"])
    assert not index_tar(FileStat(str(whole), 0, "whole"), "label").broken
    content = whole.read_bytes()
    end = len(content.rstrip(b"\0")) // 512 * 512 + 512
    for cut in range(0, end + 1, 256):
        (tmp_path / "b.tar").write_bytes(content[:cut])
        found = index_tar(FileStat(str(tmp_path / "b.tar"), cut, f"cut {tmp_path}"), "label")
        assert f"after {len(found.offset)} images" in found.broken, cut
        assert len(found.offset) < 3
        assert all(
            content[p : p + n] == TRAIN[i][2] for i, (p, n) in enumerate(zip(found.offset, found.size, strict=True))
        )


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        (lambda label: {}, "the image has no label; expected .cls, .json, .txt"),
        (lambda label: {"json": b'{"class": 1}'}, "no label under 'label'.*choose another key with --label"),
        (lambda label: {"cls": b" "}, "the label is empty"),
    ],
)
def test_a_sample_without_a_label_is_named(
    beside: Callable[[str], dict[str, bytes]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"a\.tar/\./some/0000.*{said}"):
        open_data(write_tar(tmp_path / "a.tar", TRAIN, beside))


def test_patterns_pick_shards_of_an_index(tmp_path: Path) -> None:
    data = open_data(write_folder(tmp_path / "f", ROWS))
    pack(data, tmp_path / "s", shard_size=10_240)
    names = sorted(p.name for p in (tmp_path / "s").glob("train-*.tar"))
    assert len(names) > 2
    whole = open_data(f"{tmp_path}/s/*.tar")
    assert contents(whole) == contents(data)
    train = open_data(f"{tmp_path}/s/train-*.tar", val_fraction=0)
    assert contents(train) == {"train": contents(data)["train"]}
    assert list(train.class_names) == CLASSES
    two = open_data(f"{tmp_path}/s/train-{{00000..00001}}.tar", val_fraction=0)
    index = json.loads((tmp_path / "s" / "index.json").read_text())
    assert len(two.splits["train"]) == sum(s["images"] for s in index["shards"] if s["file"] in names[:2])


def test_braces_name_every_file_there_or_not(tmp_path: Path) -> None:
    assert find_files(f"{tmp_path}/a-{{08..11}}.tar") == [f"{tmp_path}/a-{n}.tar" for n in ("08", "09", "10", "11")]
    with pytest.raises(DataError, match="names 1,000,000,000 files"):
        find_files("a-{000000000..999999999}.tar")


def test_parquet_beyond_memory_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, rows in enumerate((ROWS[:11], ROWS[11:])):
        write_parquet(tmp_path / "p" / f"{number}.parquet", columns_of(rows))
    held = open_data(tmp_path / "p")
    monkeypatch.setattr(parquet, "MEMORY_LIMIT", 0)  # a fixed number: free memory must not decide the order of samples
    parts = open_data(tmp_path / "p")
    assert isinstance(parts.splits["val"].images, ImageSubset)
    assert isinstance(parts.splits["val"].images.images, shards.ShardImages)
    assert {k: sorted(v) for k, v in contents(parts).items()} == {k: sorted(v) for k, v in contents(held).items()}
    assert parts.fingerprint == held.fingerprint
    assert contents(parts)["train"] == [(r[1], r[2]) for r in TRAIN]  # from beginning to end


def test_a_bad_image_of_parquet_read_in_parts_stays_out_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(parquet, "MEMORY_LIMIT", 0)
    rows = [*ROWS[:9], ("train", "ant", b"no image")]
    write_parquet(tmp_path / "p.parquet", columns_of(rows))
    train = open_data(tmp_path / "p.parquet", val_fraction=0).splits["train"]
    looked: list[str] = []

    def check(encoded: RawImage, name: str) -> None:
        looked.append(name)
        SEEN.check_decodable(encoded, name)

    for times in (10, 1):  # the second run looks again at what was bad alone
        kept, bad = filter_readable(train, check, 0.2, cache=ReadabilityCache("p"))
        assert (len(kept), len(bad), len(looked)) == (9, 1, times)
        looked.clear()


@pytest.fixture(params=["tar", "parquet"])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Split, Split]:
    """(the folder's train, the shards')."""
    data = open_data(write_folder(tmp_path / "f", ROWS))
    pack(data, tmp_path / "s", to=request.param, shard_size=3000)
    return data.splits["train"], open_data(tmp_path / "s").splits["train"]


def feed(split: Split, **more: object) -> BatchLoader:
    plan = Sampler(len(split), 7, seed=2, windows=shuffle_windows(split))
    return BatchLoader(FileSource(split, SEEN, CROPS), split.labels, plan, **more)  # type: ignore[arg-type]


def test_shards_feed_the_batches_of_the_folder(packed: tuple[Split, Split]) -> None:
    folder, sharded = (feed(split) for split in packed)
    for step in range(9):
        ours, theirs = (f.batch(step, (8, 8)) for f in (sharded, folder))
        assert torch.equal(ours.images, theirs.images)
        assert torch.equal(ours.labels, theirs.labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_windows_are_fed_the_same_by_threads_and_processes_and_from_mid_shard(
    packed: tuple[Split, Split], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TAR_WINDOW": 1500, "TAR_CHUNK": 600, "PARQUET_WINDOW": 1500}.items():
        monkeypatch.setattr(shards, name, value)
    here = feed(packed[1])
    assert here.sampler.windows is not None
    assert not np.array_equal(here.sampler.at(0).index, feed(packed[0]).sampler.at(0).index)
    alone = [here.batch(step, (8, 8)) for step in range(8)]
    streamed = list(islice(here.stream(3, lambda step: (8, 8), workers), 5))
    for ours, theirs in zip(streamed, alone[3:], strict=True):
        assert torch.equal(ours.images, theirs.images)
        assert np.array_equal(ours.keys.index, theirs.keys.index)


def test_each_row_group_is_read_once_an_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_next_sample_stands_in_for_one_that_has_gone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = open_data(write_folder(tmp_path / "f", ROWS))
    pack(data, tmp_path / "s", shard_size=10_240)
    split = open_data(tmp_path / "s").splits["train"]
    before = [feed(split).batch(step, (8, 8)) for step in range(5)]
    images = split.images
    assert isinstance(images, shards.ShardImages)
    path, place = Path(images.shards[images.samples.shard[17]].path), int(images.samples.offset[17])
    content = bytearray(path.read_bytes())
    content[place + 5] ^= 1
    path.write_bytes(content)
    lenient = feed(split, budget=CorruptionBudget(30, 0.05))
    for step, old in enumerate(before):
        new = lenient.batch(step, (8, 8))
        assert new.keys.index.tolist() == [18 if i == 17 else i for i in old.keys.index.tolist()]
        assert new.labels.tolist() == split.labels[new.keys.index].tolist()
        same = torch.from_numpy(old.keys.index != 17)
        assert torch.equal(new.images[same], old.images[same])
    assert [r.getMessage().split(": ")[0] for r in caplog.records] == ["unreadable, replaced by the next sample"]
    assert f"{split.images.name(17)}: its bytes in the shard have changed" in caplog.text
    strict = feed(split, budget=CorruptionBudget(30, 0.01))
    with pytest.raises(DataError, match="1 of 30 images cannot be read"):
        [strict.batch(step, (8, 8)) for step in range(5)]


def test_a_store_without_its_client_says_what_to_install() -> None:
    try:
        import gcsfs  # noqa: F401
    except ImportError:
        with pytest.raises(MissingExtraError, match=r"reading gs:// needs gcsfs.*vitkit\[gcs\]"):
            open_data("gs://bucket/train-*.tar")
    with pytest.raises(DataError, match="Protocol not known: nowhere"):
        open_data("nowhere://bucket/train-*.tar")
