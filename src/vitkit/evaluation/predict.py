"""Run a model on a split of images: predictions, evaluation, accuracy by input resolution."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vitkit.data.dataset import Dataset, Split
from vitkit.data.decode_pipeline import CORRUPT_LIMIT, Progress
from vitkit.data.loader import SplitReader
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError, InputError
from vitkit.evaluation.eval_data import (
    check_val_is_unseen,
    choose_split,
    count_overlap,
    open_eval_data,
    overlap_notes,
)
from vitkit.evaluation.evaluation import Evaluation, evaluate_predictions
from vitkit.evaluation.label_map import find_class_names, label_notes, match_labels
from vitkit.evaluation.metrics import Interval, Predictions, top_k, top_k_interval
from vitkit.model import ViT
from vitkit.runtime.device import select_device
from vitkit.runtime.threaded_inference import ThreadedInference
from vitkit.weights.load import load_model
from vitkit.weights.metadata import require_metadata

ImageSize = int | tuple[int, int]  # (height, width)


@dataclass(frozen=True)
class ResolutionResult:
    """Accuracy and speed at one input size."""

    size: ImageSize
    top1: float
    interval: Interval
    images_per_s: float  # reading, preprocessing and model together


def evaluate(
    model: nn.Module | str | Path,
    data: Dataset | Split | str | Path,
    preprocess: Preprocess | None = None,
    class_names: Sequence[str] | None = None,
    *,
    split: str | None = None,
    batch_size: int = 256,
    image_size: ImageSize | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
) -> Evaluation:
    """Return accuracy with intervals, calibration, scores per class and mistakes of a model on labelled images.

    `model` is a module, or anything that `load_model` opens. `data` is a `Dataset`, a `Split`, or anything that
    `open_data` opens. The labels of a `Split` are taken as the model's class indices. Preprocessing and class names are
    those of the model unless given. Without `split`, the test split is evaluated, else val. If a path has no splits,
    the validation images of the model's training are evaluated, or all images if it was not trained on them. If it was
    trained on some of them, by content, the others are evaluated. `overlap` of the result counts training images.
    """
    source = "the model" if isinstance(model, nn.Module) else model
    module = model if isinstance(model, nn.Module) else load_model(model, select_device("auto"))
    models = [module] if isinstance(module, ViT) else []
    opened = None if isinstance(data, Split) else _open(data, models, split, corrupt_limit)
    if opened is not None and not class_names:
        class_names = find_class_names(module, opened)
    class_names, preprocess = require_metadata(module, source, class_names, preprocess)
    name = choose_split(opened, split) if opened else ""
    images = match_labels(opened, opened.splits[name], class_names) if opened else data
    assert isinstance(images, Split)
    found = predict_split(
        module, images, preprocess, class_names,
        batch_size=batch_size, image_size=image_size, corrupt_limit=corrupt_limit, progress=progress,
    )  # fmt: skip
    return annotate(evaluate_predictions(found), models, images, opened, name)


def annotate(
    evaluation: Evaluation, models: Sequence[ViT], images: Split, data: Dataset | None = None, split: str = ""
) -> Evaluation:
    """Return the evaluation with the number of training images among `images`, and notes about them and the labels."""
    overlap = count_overlap(data, split, images, models)
    names, notes = evaluation.predictions.class_names, list[str]()
    if data is not None:
        notes = label_notes(data, names)
        if models and not models[0].info.class_names and names == tuple(find_class_names(models[0], data)):
            notes.append(f"the model has no class names: the labels of {data.name} are taken as its class indices")
    return replace(evaluation, overlap=overlap, notes=(*notes, *overlap_notes(overlap, len(images))))


def _open(data: Dataset | str | Path, models: Sequence[ViT], split: str | None, corrupt_limit: float) -> Dataset:
    if not isinstance(data, Dataset):
        return open_eval_data(data, models, split, corrupt_limit=corrupt_limit)
    if choose_split(data, split) == "val" and not split:
        check_val_is_unseen(data, models)
    return data


def predict_split(
    model: nn.Module,
    split: Split,
    preprocess: Preprocess,
    class_names: Sequence[str],
    *,
    batch_size: int = 256,
    image_size: ImageSize | None = None,
    progress: Progress | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Predictions:
    """Return the model's logits for every image of a split, in its order.

    Images are decoded as they are needed. Undecodable ones are left out and named in `skipped`. A share of them above
    `corrupt_limit` is an error.
    """
    preprocess = preprocess if image_size is None else preprocess.replace(size=image_size)
    reader = SplitReader(split, preprocess, batch_size, progress, corrupt_limit)
    logits, labels = predict_logits(ThreadedInference(model), reader.batches(_first_float(model).device))
    names = [split.images.name(i) for i in reader.indices]
    return Predictions(logits, labels, class_names, names, reader.skipped)


def predict_logits(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, K) float32 logits and (N,) int64 labels of batches (images, labels) that are ready for the model.

    Images are moved to the model's device and dtype. The model runs in eval mode; afterwards every module has the mode
    that it had before.
    """
    like, logits, labels = _first_float(model), [], []
    with torch.inference_mode(), eval_mode(model):
        for images, targets in batches:
            output = model(images.to(like.device, like.dtype))
            if output.ndim != 2 or len(output) != len(images):
                raise InputError(
                    f"the model returned {tuple(output.shape)} for {len(images)} images: expected (images, classes)"
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
    sizes: Sequence[ImageSize],
    *,
    batch_size: int = 256,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> list[ResolutionResult]:
    """Return accuracy and speed at each input size. A first batch warms up each size before the clock starts."""
    runner, results = ThreadedInference(model), []
    for size in sizes:
        readers = [
            SplitReader(split, preprocess.replace(size=size), batch_size, corrupt_limit=corrupt_limit) for _ in range(2)
        ]
        warm_up, batches = (reader.batches(_first_float(model).device) for reader in readers)
        predict_logits(runner, islice(warm_up, 1))
        start = time.perf_counter()
        logits, labels = predict_logits(runner, batches)
        seconds = time.perf_counter() - start
        found = Predictions(logits, labels, [str(i) for i in range(logits.shape[1])])
        results.append(ResolutionResult(size, top_k(found), top_k_interval(found), len(found) / seconds))
    return results


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Set eval mode, and restore the mode of each module afterwards: parts of a model may be frozen in eval mode."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _first_float(model: nn.Module) -> Tensor:
    """Return a weight that has the device and dtype of the model, or an empty tensor if it has no weights."""
    weights = chain(model.parameters(), model.buffers())
    return next((w for w in weights if w.is_floating_point()), torch.empty(0))
