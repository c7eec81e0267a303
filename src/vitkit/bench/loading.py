"""Benchmarks data loading: images per second of the loader, of plain Pillow, and of a training step.

`pillow` opens, converts and resizes one image at a time; images in memory are padded, cropped and flipped instead. The
loader does the work of `vitkit train`: it also crops and flips at random and stacks batches. If the training step is
the slowest row, training does not wait for data.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
from PIL import Image, ImageOps

from vitkit.bench.harness import BenchResult, summarize_times
from vitkit.bench.training import TrainingJob, prepare
from vitkit.data.dataset import Split
from vitkit.data.loader import Batch, BatchLoader, make_source, pixels_of
from vitkit.data.preprocess import Preprocess
from vitkit.data.sampler import Sampler
from vitkit.data.transforms import Augment
from vitkit.model import ViTConfig
from vitkit.runtime.timing import interleave, time_call

SecondsPerBatch = Callable[[], float]
LoadImage = Callable[[object, ViTConfig, np.random.Generator], object]


def bench_loading(
    split: Split,
    config: ViTConfig,
    batch_size: int = 16,
    workers: Sequence[int] = (0, 1, 2),
    rounds: int = 5,
    batches: int = 8,
) -> list[BenchResult]:
    """Return a result for each way to load images. In each round every way loads this number of batches."""
    in_memory = pixels_of(split) is not None
    preprocess = Preprocess(
        size=config.image_size, channels=config.in_channels, crop_fraction=1.0 if in_memory else 0.875
    )
    augment = Augment(crop="pad" if in_memory else "resized")
    source, split, _ = make_source(split, preprocess, augment, corrupt_limit=0.01)
    loader = BatchLoader(source, split.labels, Sampler(len(split), min(batch_size, len(split))))
    batch_size = loader.sampler.batch_size
    ways = {f"loader, {n} workers": _loader(loader, n, config.image_size, batches) for n in workers}
    ways["pillow"] = _pillow(_pad_crop_flip if in_memory else _resize, split, config, batch_size, batches)
    ways["training step"] = partial(time_call, prepare("vitkit fp32", TrainingJob(config, batch_size)))
    return summarize_times(interleave(ways, rounds), batch_size)


def _loader(loader: BatchLoader, workers: int, size: tuple[int, int], batches: int) -> SecondsPerBatch:
    stream: Iterator[Batch] = loader.stream(0, lambda step: size, workers)
    if workers:
        next(stream)  # starts the worker processes before other candidates start threads
    prefetched = 2 * workers or loader.source.threads  # ready before the turn begins, so not timed

    def run() -> float:
        _drain(stream, prefetched + 1)
        return time_call(lambda: _drain(stream, batches)) / batches

    return run


def _drain(stream: Iterator[Batch], count: int) -> None:
    for _ in islice(stream, count):
        pass


def _pillow(load: LoadImage, split: Split, config: ViTConfig, batch_size: int, batches: int) -> SecondsPerBatch:
    rng = np.random.default_rng(0)

    def load_batches() -> None:
        for index in rng.integers(0, len(split), batch_size * batches).tolist():
            load(split.images[index], config, rng)

    return lambda: time_call(load_batches) / batches


def _resize(encoded: object, config: ViTConfig, rng: np.random.Generator) -> object:
    assert isinstance(encoded, bytes)
    image = Image.open(io.BytesIO(encoded)).convert("RGB" if config.in_channels == 3 else "L")
    return np.asarray(image.resize(config.image_size[::-1], Image.Resampling.BICUBIC))


def _pad_crop_flip(pixels: object, config: ViTConfig, rng: np.random.Generator) -> object:
    height, width = config.image_size
    image = ImageOps.expand(Image.fromarray(np.asarray(pixels)), height // 8)
    left, top = rng.integers(0, height // 4 + 1, 2).tolist()
    crop = image.crop((left, top, left + width, top + height))
    return np.asarray(crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else crop)
