"""Does the loader keep up? Images per second from the data set to the batch, beside plain Pillow and a training step.

`pillow` opens, converts and resizes image by image, the least that a loop of one's own has to do; images that lie in
memory it pads, crops and flips. The loader does what `vitkit train` asks of it: random crops and flips too, stacked to
batches. The step is what the batches are for: where it is the slowest row, training never waits for data.
"""

import io
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
from PIL import Image, ImageOps

from vitkit.bench.harness import Row, rows
from vitkit.bench.training import Job, prepare
from vitkit.data.dataset import Split
from vitkit.data.loader import Batch, BatchLoader, make_source, pixels_of
from vitkit.data.preprocess import Preprocess
from vitkit.data.sampler import Sampler
from vitkit.data.transforms import Augment
from vitkit.model import ViTConfig
from vitkit.runtime.timing import interleave

Turn = Callable[[], float]  # → seconds per batch


def loading(
    split: Split, config: ViTConfig, batch: int = 16, workers: Sequence[int] = (0, 1, 2), rounds: int = 5, turn: int = 8
) -> list[Row]:
    """A row per way, each with `turn` batches in a round."""
    in_memory = pixels_of(split) is not None
    preprocess = Preprocess(
        size=config.image_size, channels=config.in_channels, crop_fraction=1.0 if in_memory else 0.875
    )
    augment = Augment(crop="pad" if in_memory else "resized")
    store, split, _ = make_source(split, preprocess, augment, corrupt_limit=0.01)
    feed = BatchLoader(store, split.labels, Sampler(len(split), min(batch, len(split))))
    ways = {f"loader, {n} workers": _loader(feed, n, config.image_size, turn) for n in workers}
    ways["pillow"] = _pillow(_padded if in_memory else _resized, split, config, feed.sampler.batch_size, turn)
    ways["training step"] = _step(config, feed.sampler.batch_size)
    return rows(interleave(ways, rounds), feed.sampler.batch_size, macs=0.0, peak_macs_per_s=1.0)


def _loader(feed: BatchLoader, workers: int, size: tuple[int, int], turn: int) -> Turn:
    stream: Iterator[Batch] = feed.stream(0, lambda step: size, workers)
    if workers:
        next(stream)  # the processes start now, before others have threads at work
    ahead = 2 * workers or feed.source.threads  # made while others had their turn, and so not counted

    def run() -> float:
        _drain(stream, ahead + 1)
        started = time.perf_counter()
        _drain(stream, turn)
        return (time.perf_counter() - started) / turn

    return run


def _drain(stream: Iterator[Batch], count: int) -> None:
    for _ in islice(stream, count):
        pass


def _pillow(
    one: Callable[[object, ViTConfig, np.random.Generator], object],
    split: Split,
    config: ViTConfig,
    batch: int,
    turn: int,
) -> Turn:
    chance = np.random.default_rng(0)

    def run() -> float:
        started = time.perf_counter()
        for index in chance.integers(0, len(split), batch * turn).tolist():
            one(split.images[index], config, chance)
        return (time.perf_counter() - started) / turn

    return run


def _resized(encoded: object, config: ViTConfig, chance: np.random.Generator) -> object:
    assert isinstance(encoded, bytes)
    image = Image.open(io.BytesIO(encoded)).convert("RGB" if config.in_channels == 3 else "L")
    return np.asarray(image.resize(config.image_size[::-1], Image.Resampling.BICUBIC))


def _padded(pixels: object, config: ViTConfig, chance: np.random.Generator) -> object:
    height, width = config.image_size
    image = ImageOps.expand(Image.fromarray(np.asarray(pixels)), height // 8)
    left, top = chance.integers(0, height // 4 + 1, 2).tolist()
    cut = image.crop((left, top, left + width, top + height))
    return np.asarray(cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if chance.random() < 0.5 else cut)


def _step(config: ViTConfig, batch: int) -> Turn:
    step = prepare("vitkit fp32", Job(config, batch))

    def run() -> float:
        started = time.perf_counter()
        step()
        return time.perf_counter() - started

    return run
