"""A model and a split in, an evaluation out."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import torch
from torch import Tensor, nn

from vitkit.data.dataset import Split
from vitkit.data.pipeline import CORRUPT_LIMIT, CorruptionBudget, Progress, threaded_map
from vitkit.data.preprocess import Preprocess
from vitkit.errors import CorruptImageError, DataError, InputError
from vitkit.evaluation.evaluation import Evaluation, evaluate_predictions
from vitkit.evaluation.metrics import Interval, Predictions, top_k, top_k_interval
from vitkit.runtime.data_parallel import ThreadedInference

Size = int | tuple[int, int]  # (height, width)


@dataclass(frozen=True)
class ResolutionResult:
    """Accuracy and speed at one input size."""

    size: Size
    top1: float
    interval: Interval
    images_per_s: float  # reading, preprocessing and model together


def evaluate(
    model: nn.Module,
    split: Split,
    preprocess: Preprocess,
    class_names: Sequence[str],
    *,
    batch_size: int = 256,
    image_size: Size | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Everything that is measured of a model on a split; at another input size if one is given."""
    return evaluate_predictions(
        predict_split(
            model, split, preprocess, class_names, batch_size=batch_size, image_size=image_size, progress=progress
        )
    )


def predict_split(
    model: nn.Module,
    split: Split,
    preprocess: Preprocess,
    class_names: Sequence[str],
    *,
    batch_size: int = 256,
    image_size: Size | None = None,
    progress: Progress | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Predictions:
    """The model's logits for every image of a split, in its order, decoded as they are needed. Images that cannot be
    decoded are left out and named in `skipped`; a larger share of them than `corrupt_limit` is an error."""
    reading = Reading(split, _resized(preprocess, image_size), batch_size, progress, corrupt_limit)
    logits, labels = predict_logits(ThreadedInference(model), reading.batches(_device(model)))
    names = [split.images.name(i) for i in reading.kept]
    skipped = [f"{name}: {reason}" for name, reason in reading.corrupt.found.items()]
    return Predictions(logits, labels, class_names, names, skipped)


def predict_logits(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) float32 logits and (N,) int64 labels of batches (images, labels) that are ready for the model.

    Images are moved to the model's device and dtype. The model is put in eval mode and every module of it back
    into the mode it was in.
    """
    device, dtype = _device(model), _dtype(model)
    logits, labels = [], []
    with torch.inference_mode(), eval_mode(model):
        for images, targets in batches:
            output = model(images.to(device, dtype))
            if output.ndim != 2 or len(output) != len(images):
                raise InputError(
                    f"the model made {tuple(output.shape)} of {len(images)} images: expected (images, classes)"
                )
            logits.append(output.float().cpu())
            labels.append(targets.cpu())
    if not logits:
        raise DataError("no samples to evaluate: the split is empty")
    return torch.cat(logits).numpy(), torch.cat(labels).numpy().astype(np.int64)


def resolution_sweep(
    model: nn.Module,
    split: Split,
    preprocess: Preprocess,
    sizes: Sequence[Size],
    *,
    batch_size: int = 256,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> list[ResolutionResult]:
    """Accuracy by input size. The first batch of each size is run once before the clock starts."""

    def read(size: Size) -> Reading:
        return Reading(split, _resized(preprocess, size), batch_size, corrupt_limit=corrupt_limit)

    return [_at_size(model, size, read) for size in sizes]


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Module by module, for parts of a model may be frozen in eval mode while the rest trains."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


class Reading:
    """A split on its way to the model: what is kept of it, and what is left out, is known when it is through."""

    def __init__(
        self,
        split: Split,
        preprocess: Preprocess,
        batch_size: int,
        progress: Progress | None = None,
        corrupt_limit: float = CORRUPT_LIMIT,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch size {batch_size}: must be at least 1")
        self.split, self.preprocess, self.batch_size, self.progress = split, preprocess, batch_size, progress
        self.kept: list[int] = []
        self.corrupt = CorruptionBudget(len(split), corrupt_limit)

    def batches(self, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
        """Decoded by threads; uint8 until the batch is on the device."""
        stream = enumerate(threaded_map(self._read, len(self.split)))
        while results := list(islice(stream, self.batch_size)):
            good = {i: result for i, result in results if isinstance(result, Tensor)}
            for _, result in results:
                if isinstance(result, CorruptImageError):
                    self.corrupt.add(result)
            self.kept.extend(good)
            if good:
                pixels = torch.stack(list(good.values())).to(device)
                yield self.preprocess.normalize(pixels), torch.from_numpy(self.split.labels[list(good)])
            if self.progress is not None:
                self.progress(results[-1][0] + 1, len(self.split))

    def _read(self, index: int) -> Tensor | CorruptImageError:
        try:
            return self.preprocess(self.split.images[index], self.split.images.name(index))
        except CorruptImageError as error:
            return error


def _at_size(model: nn.Module, size: Size, read: Callable[[Size], Reading]) -> ResolutionResult:
    device = _device(model)
    model = ThreadedInference(model)
    predict_logits(model, islice(read(size).batches(device), 1))
    start = time.perf_counter()
    logits, labels = predict_logits(model, read(size).batches(device))
    seconds = time.perf_counter() - start
    predictions = Predictions(logits, labels, [str(i) for i in range(logits.shape[1])])
    return ResolutionResult(size, top_k(predictions), top_k_interval(predictions), len(predictions) / seconds)


def _resized(preprocess: Preprocess, size: Size | None) -> Preprocess:
    return preprocess if size is None else preprocess.replace(size=size)


def _first_float(model: nn.Module) -> Tensor:
    weights = chain(model.parameters(), model.buffers())
    return next((w for w in weights if w.is_floating_point()), torch.empty(0))


def _device(model: nn.Module) -> torch.device:
    return _first_float(model).device


def _dtype(model: nn.Module) -> torch.dtype:
    return _first_float(model).dtype
