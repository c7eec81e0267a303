"""Choose the images on which a model is evaluated."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitkit.data.dataset import Dataset
from vitkit.data.open import open_data
from vitkit.errors import DataError, UnknownNameError
from vitkit.model import ViT

ALL = "all"  # the split that holds every image of data without splits


def open_eval_data(source: str | Path, models: Sequence[ViT], split: str | None = None, **options: Any) -> Dataset:
    """Open data with the validation split that the first model was trained with.

    Data without splits that no model was trained on become one split, `all`. `options` are those of `open_data`.
    """
    split_settings = models[0].info.split_settings if models else {}
    data = open_data(source, **options, **split_settings)
    if split or "test" in data.splits or not data.val_was_drawn:
        return data
    if any(_was_trained_on(model, source, options) for model in models):
        return data
    data = open_data(source, **options, val_fraction=0.0)
    note = f"{data.name} has no splits and the model was not trained on it: all of its images are evaluated"
    return replace(data, splits={ALL: data.splits["train"]}, notes=(note,))


def choose_split(data: Dataset, split: str | None = None) -> str:
    """Return `split` if the data have it. If it is None, return the first of test, val, all and train that exists."""
    name = split or next(n for n in ("test", "val", ALL, "train") if n in data.splits)
    if name not in data.splits:
        raise UnknownNameError(f"split of {data.name}", name, data.splits)
    return name


def check_val_is_unseen(data: Dataset, models: Sequence[ViT]) -> None:
    """Raise if the val split was drawn by `open_data` and may differ from the one a model was trained with."""
    trained_on = [model.info.data.get("fingerprint") for model in models]
    if data.val_was_drawn and any(known not in (None, data.fingerprint) for known in trained_on):
        raise DataError(
            f"{data.name}: its val split was drawn when it was opened, so the model may have been trained on it; "
            'pass the path instead of the opened data, or split="val" if the model was trained on other images'
        )


def _was_trained_on(model: ViT, source: str | Path, options: dict[str, Any]) -> bool:
    """Return True if the model was trained on data from this path, or on the same images from another one."""
    path = model.info.recipe.get("data")
    if path and (path == source or Path(path).expanduser().resolve() == Path(source).expanduser().resolve()):
        return True
    fingerprint = model.info.data.get("fingerprint")
    data = open_data(source, **options, **model.info.split_settings) if fingerprint else None
    return data is not None and data.fingerprint == fingerprint
