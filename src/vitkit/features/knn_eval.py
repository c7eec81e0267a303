"""Evaluate frozen weights by k-NN: each image is classified by its nearest neighbours in the training split."""

from dataclasses import dataclass

from vitkit.data.dataset import Dataset
from vitkit.data.decode_pipeline import CORRUPT_LIMIT, Progress
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError
from vitkit.evaluation import Predictions
from vitkit.features.cache import cached_features
from vitkit.features.extract import probe_backbone
from vitkit.features.knn import choose_k, knn_predict
from vitkit.model import ViT


@dataclass(frozen=True)
class KNNResult:
    predictions: Predictions
    k: int
    leave_one_out_accuracy: float | None  # of the training images; None if k was given


def evaluate_knn(
    model: ViT,
    data: Dataset,
    split: str,
    preprocess: Preprocess,
    *,
    k: int = 0,
    batch_size: int = 64,
    progress: Progress | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> KNNResult:
    """Classify a split by its k nearest neighbours in the training split. With k=0, that split alone determines k."""
    if "train" not in data.splits or split == "train":
        raise DataError(f"{data.name}: k-NN needs a train split, and another split to evaluate")
    model = probe_backbone(model)  # a linear probe then finds the same features in the cache
    gallery, queries = data.splits["train"], data.splits[split]
    known, unknown = (
        cached_features(model, part, preprocess, batch_size=batch_size, progress=progress, corrupt_limit=corrupt_limit)
        for part in (gallery, queries)
    )
    labels, classes = gallery.labels[known.indices], len(data.class_names)
    accuracy = None
    if not k:
        k, accuracies = choose_k(known.values, labels, classes)
        accuracy = accuracies[k]
    votes = knn_predict(known.values, labels, unknown.values, classes, k)
    names = [queries.images.name(int(i)) for i in unknown.indices]
    predictions = Predictions(votes, queries.labels[unknown.indices], data.class_names, names, unknown.skipped)
    return KNNResult(predictions, k, accuracy)
