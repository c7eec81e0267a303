"""Batches of photographs: the same whoever makes them, and decoded no larger than they need be."""

import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitkit.data.dataset import ArrayImages, FileImages, Split
from vitkit.data.decode import decode
from vitkit.data.loader import BatchLoader, FileSource
from vitkit.data.preprocess import Preprocess
from vitkit.data.sampler import Sampler
from vitkit.data.transforms import Augment, draw_crop_boxes, draw_flips

SEEN = Preprocess(size=32)


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
        exif[0x0112] = 6 if i % 3 == 0 else 1  # every third lies on its side
        photograph(i, 400 + 16 * i, 300).save(path, quality=92, exif=exif)
        paths.append(str(path))
    return Split(FileImages(paths), np.arange(12) % 4)


@pytest.mark.parametrize("crop", ["resized", "pad"])
@pytest.mark.parametrize("workers", [0, 1])
def test_threads_and_processes_make_the_batches_of_the_plan(files: Split, crop: str, workers: int) -> None:
    feed = BatchLoader(FileSource(files, SEEN, Augment(crop=crop, jitter=0.2)), files.labels, Sampler(12, 5, seed=3))
    streamed = list(islice(feed.stream(2, lambda step: (32, 24 + step), workers), 4))
    for step, batch in enumerate(streamed, 2):
        alone = feed.batch(step, (32, 24 + step))
        assert torch.equal(batch.images, alone.images)
        assert torch.equal(batch.labels, alone.labels)
        assert batch.images.shape == (5, 3, 32, 24 + step)


@pytest.mark.parametrize("channels", [2, 4, 5])
def test_arrays_of_other_channels_are_cropped_too(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 20, 16, channels), dtype=np.uint8)
    split = Split(ArrayImages(pixels, "x"), np.zeros(6, int))
    seen = Preprocess(size=8, channels=channels)
    store = FileSource(split, seen, Augment(crop="resized"))
    assert store.fetch(Sampler(6, 6, seed=1).at(0), (8, 8)).shape == (6, channels, 8, 8)


def test_a_crop_of_a_reduced_photograph_is_nearly_that_of_the_whole_one(files: Split) -> None:
    """And of the same place: the box is drawn for the image as it stands upright."""
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
        raise WorkError("the store is gone")

if __name__ == "__main__":
    try:
        next(BatchLoader(Broken(), np.zeros(9, int), Sampler(9, 3, seed=0)).stream(0, lambda step: (8, 8), workers=2))
    except (WorkError, RuntimeError) as error:
        print(type(error).__name__)
        sys.exit(1)
"""


@pytest.mark.parametrize("how", ["raises", "killed"])
def test_a_worker_process_that_fails_ends_the_run(how: str, tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(tmp_path / "run.py"), how], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert done.stdout.strip() == ("WorkError" if how == "raises" else "RuntimeError")
