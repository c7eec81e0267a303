"""The first rung: given weights judge a split by its nearest neighbours in the training split."""

from dataclasses import dataclass

from vitkit.data.dataset import Dataset
from vitkit.data.pipeline import CORRUPT_LIMIT, Progress
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError
from vitkit.evaluation import Predictions
from vitkit.features import cached_features, choose_k, knn
from vitkit.model import ViT
from vitkit.training.init_from import adapt, wider


@dataclass(frozen=True)
class Nearest:
    predictions: Predictions
    k: int
    left_out: float | None  # accuracy on training images, each judged by the others; None: k was given


def nearest(
    model: ViT,
    data: Dataset,
    split: str,
    preprocess: Preprocess,
    *,
    k: int = 0,
    batch: int = 64,
    progress: Progress | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Nearest:
    """No training: the features of both splits are compared. k=0: chosen on the training split alone."""
    if "train" not in data.splits or split == "train":
        raise DataError(f"{data.name}: neighbours are looked for in its train split, which must be there and another")
    model = adapt(model, wider(model.config), (), preprocess.size)  # as a probe looks: both find the same in the cache
    gallery, queries = data.splits["train"], data.splits[split]
    known, asked = (
        cached_features(model, part, preprocess, batch=batch, progress=progress, corrupt_limit=corrupt_limit)
        for part in (gallery, queries)
    )
    labels, classes = gallery.labels[known.kept], len(data.class_names)
    accuracy = None
    if not k:
        k, found = choose_k(known.values, labels, classes)
        accuracy = found[k]
    votes = knn(known.values, labels, asked.values, classes, k)
    names = [queries.images.name(int(i)) for i in asked.kept]
    predictions = Predictions(votes, queries.labels[asked.kept], data.class_names, names, asked.skipped)
    return Nearest(predictions, k, accuracy)
