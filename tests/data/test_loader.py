"""Batches do not depend on who makes them; images are decoded no larger than needed."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitkit.data import loader
from vitkit.data.dataset import ArrayImages, FileImages, Split
from vitkit.data.decode import decode
from vitkit.data.loader import BatchLoader, CachedView, FileSource, SplitReader, StreamingView, make_view
from vitkit.data.preprocess import Preprocess
from vitkit.data.sampler import Sampler
from vitkit.data.transforms import Augment, draw_crop_boxes, draw_flips
from vitkit.errors import CorruptImageError, DataError, InputError

SEEN, SMALL = Preprocess(size=32), Preprocess(size=16)


def photograph(number: int, width: int, height: int) -> Image.Image:
    """Waves in three colours, with structure at all sizes down to a few pixels."""
    y, x = np.mgrid[0:height, 0:width] / max(width, height)
    waves = [np.sin(f * (x + 0.3 * y) + number) + np.cos(0.7 * f * y) for f in (6, 25, 90)]
    return Image.fromarray(np.uint8(np.stack(waves, -1) * 60 + 127))


@pytest.fixture
def files(tmp_path: Path) -> Split:
    paths = []
    for i in range(12):
        path = tmp_path / f"{i}.jpg"
        exif = Image.Exif()
        exif[0x0112] = 6 if i % 3 == 0 else 1  # every third is rotated
        photograph(i, 400 + 16 * i, 300).save(path, quality=92, exif=exif)
        paths.append(str(path))
    return Split(FileImages(paths), np.arange(12) % 4)


@pytest.mark.parametrize("crop", ["resized", "pad"])
@pytest.mark.parametrize("workers", [0, 1])
def test_threads_and_processes_make_the_same_batches(files: Split, crop: str, workers: int) -> None:
    batches = BatchLoader(FileSource(files, SEEN, Augment(crop=crop, jitter=0.2)), files.labels, Sampler(12, 5, seed=3))
    streamed = list(islice(batches.stream(2, lambda step: (32, 24 + step), workers), 4))
    for step, batch in enumerate(streamed, 2):
        alone = batches.batch(step, (32, 24 + step))
        assert torch.equal(batch.images, alone.images)
        assert torch.equal(batch.labels, alone.labels)
        assert batch.images.shape == (5, 3, 32, 24 + step)


@pytest.mark.parametrize("channels", [2, 4, 5])
def test_arrays_of_other_channels_are_cropped_too(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 20, 16, channels), dtype=np.uint8)
    split = Split(ArrayImages(pixels, "x"), np.zeros(6, int))
    seen = Preprocess(size=8, channels=channels)
    source = FileSource(split, seen, Augment(crop="resized"))
    assert source.fetch(Sampler(6, 6, seed=1).at(0), (8, 8)).shape == (6, channels, 8, 8)


def test_a_crop_decoded_at_reduced_scale_is_close_to_the_exact_crop(files: Split) -> None:
    """It is the same part of the image: the box is drawn for the upright image."""
    settings = Augment(crop="resized", scale=(0.3, 1.0))
    keys = Sampler(12, 12, seed=1).at(0)
    rows = FileSource(files, SEEN, settings).fetch(keys, (32, 32)).permute(0, 2, 3, 1).numpy()
    reduced = 0
    for i, index in enumerate(keys.index.tolist()):
        whole = decode(files.images[index])
        box = draw_crop_boxes(keys[i : i + 1], settings, np.array([whole.width]), np.array([whole.height]))[0]
        exact = SEEN.random_resized_crop(whole, tuple(box), bool(draw_flips(keys)[i]))
        difference = np.abs(rows[i].astype(int) - exact)
        assert difference.mean() < 2.0, files.images.name(index)
        reduced += difference.max() > 0
    assert reduced >= 8, "most of these should have been decoded at a reduced scale"


SCRIPT = """
import os, sys
import numpy as np
from vitkit.data.loader import BatchLoader
from vitkit.data.sampler import Sampler
from vitkit.errors import WorkError

class Broken:
    threads = 1

    def fetch(self, keys, size):
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), 9)
        raise WorkError("the disk is gone")

if __name__ == "__main__":
    try:
        next(BatchLoader(Broken(), np.zeros(9, int), Sampler(9, 3, seed=0)).stream(0, lambda step: (8, 8), workers=2))
    except (WorkError, RuntimeError) as error:
        print(type(error).__name__)
        sys.exit(1)
"""


@pytest.mark.parametrize("how", ["raises", "killed"])
def test_a_worker_process_that_fails_ends_the_run(how: str, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run([sys.executable, str(tmp_path / "run.py"), how], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert done.stdout.strip() == ("WorkError" if how == "raises" else "RuntimeError")


@pytest.fixture
def damaged(tmp_path: Path) -> Split:
    """23 photographs; the sixth is truncated."""
    chance = np.random.default_rng(0)
    paths = [tmp_path / f"{i:02}.png" for i in range(23)]
    for i, path in enumerate(paths):
        Image.fromarray(chance.integers(0, 256, (20 + i, 30, 3), dtype=np.uint8)).save(path)
    paths[5].write_bytes(paths[5].read_bytes()[:200])
    return Split(FileImages([str(p) for p in paths]), np.arange(23))


def make_views(damaged: Split, monkeypatch: pytest.MonkeyPatch) -> tuple[CachedView, StreamingView]:
    cached, kept, bad = make_view(damaged, SMALL, corrupt_limit=1.0)
    monkeypatch.setattr(loader, "MEMORY", 22 * 3 * 16 * 16 - 1)
    streamed, kept_again, bad_again = make_view(damaged, SMALL, corrupt_limit=1.0)
    assert isinstance(cached, CachedView)
    assert isinstance(streamed, StreamingView)
    assert kept.labels.tolist() == kept_again.labels.tolist()
    assert bad == bad_again
    return cached, streamed


@pytest.mark.parametrize("size", [1, 7, 22, 100])
def test_a_streaming_view_gives_the_batches_of_a_cached_one(
    damaged: Split, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached, streamed = make_views(damaged, monkeypatch)
    one, other = list(cached.batches(size)), list(streamed.batches(size))
    assert [len(b) for b in one] == [len(b) for b in other]
    assert sum(map(len, one)) == 22
    assert torch.equal(torch.cat(one), torch.cat(other))


def test_arrays_that_do_not_fit_twice_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    seen = SMALL.replace(crop_fraction=1.0)
    monkeypatch.setattr(loader, "MEMORY", 0)
    streamed, _, _ = make_view(Split(ArrayImages(pixels, "a"), np.zeros(10, int)), seen, corrupt_limit=0.0)
    assert torch.equal(torch.cat(list(streamed.batches(4))).permute(0, 2, 3, 1), torch.from_numpy(pixels))


def test_an_image_that_becomes_unreadable_is_named(damaged: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    _, streamed = make_views(damaged, monkeypatch)
    Path(streamed.split.images.name(20)).unlink()
    with pytest.raises(CorruptImageError, match=r"21\.png: there is no such file"):
        list(streamed.batches(4))


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_a_split_reader_skips_and_names_unreadable_images(damaged: Split, batch_size: int) -> None:
    reader = SplitReader(damaged, SMALL, batch_size, corrupt_limit=0.1)
    images, labels = zip(*reader.batches(torch.device("cpu")), strict=True)
    assert torch.cat(labels).tolist() == reader.indices == [i for i in range(23) if i != 5]
    assert torch.equal(torch.cat(images)[7], SMALL.normalize(SMALL(damaged.images[8])))
    assert [line.split(": ")[0] for line in reader.skipped] == [damaged.images.name(5)]
    with pytest.raises(DataError, match="1 of 23 images cannot be read"):
        list(SplitReader(damaged, SMALL, batch_size).batches(torch.device("cpu")))
    with pytest.raises(InputError, match="batch size 0"):
        SplitReader(damaged, SMALL, 0)
