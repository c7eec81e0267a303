"""Choose the images on which a model is evaluated, and count those that it was trained on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.data.dataset import Dataset, Split
from vitkit.data.fingerprint import find_images
from vitkit.data.open import open_data
from vitkit.errors import DataError, UnknownNameError
from vitkit.evaluation.evaluation import Overlap
from vitkit.model import ViT

ALL = "all"  # the split that holds every image of data without splits
UNSEEN = "unseen"  # the split of data without splits that holds the images that no model was trained on


def open_eval_data(source: str | Path, models: Sequence[ViT], split: str | None = None, **options: Any) -> Dataset:
    """Open data with the validation split that the first model was trained with.

    Data without splits that no model was trained on become one split, `all`. If models were trained on some of the
    images, the others become the split `unseen`. `options` are those of `open_data`.
    """
    split_settings = models[0].info.split_settings if models else {}
    data = open_data(source, **options, **split_settings)
    if split or "test" in data.splits or not data.val_was_drawn:
        return data
    if any(_was_trained_on(model, source, options) for model in models):
        return data
    data = open_data(source, **options, val_fraction=0.0)
    images = data.splits["train"]
    seen = _find_in_training(images, models, "train")
    if seen is None or not seen.any():
        note = f"{data.name} has no splits and the model was not trained on it: all of its images are evaluated"
        if seen is None and any(model.info.data.get("fingerprint") for model in models):
            note += " (copies of single training images are not recognised, because there are no hashes of them)"
        return replace(data, splits={ALL: images}, notes=(*data.notes, note))
    count = int(seen.sum())
    if seen.all():
        raise DataError(
            f"the model was trained on all {count:,} images of {data.name}: evaluate others, or add --split train"
        )
    note = (
        f"the model was trained on {count:,} of the {len(images):,} images of {data.name}, which are left out: "
        f"the other {len(images) - count:,} are evaluated"
    )
    splits = {UNSEEN: images.subset(np.flatnonzero(~seen)), "train": images.subset(np.flatnonzero(seen))}
    return replace(data, splits=splits, notes=(*data.notes, note))


def choose_split(data: Dataset, split: str | None = None) -> str:
    """Return `split` if the data have it. If it is None, return the first of test, val, all, unseen and train."""
    name = split or next(n for n in ("test", "val", ALL, UNSEEN, "train") if n in data.splits)
    if name not in data.splits:
        raise UnknownNameError(f"split of {data.name}", name, data.splits)
    return name


def check_val_is_unseen(data: Dataset, models: Sequence[ViT]) -> None:
    """Raise if the val split was drawn by `open_data` and may contain images that a model was trained on."""
    trained_on = [model.info.data.get("fingerprint") for model in models]
    if not data.val_was_drawn or all(known in (None, data.fingerprint) for known in trained_on):
        return
    seen = _find_in_training(data.splits["val"], models, "train")
    if seen is None or seen.any():
        which = "the model may have been trained on it" if seen is None else f"it has {seen.sum():,} training images"
        raise DataError(
            f"{data.name}: its val split was drawn when it was opened, so {which}; "
            'pass the path instead of the opened data, or split="val" if the model was trained on other images'
        )


def count_overlap(data: Dataset | None, split: str, images: Split, models: Sequence[ViT]) -> Overlap | None:
    """Count the images of a split that the models were trained on; None if models or images have no hashes."""
    seen, chosen_by = (_find_in_training(images, models, name) for name in ("train", "val"))
    if seen is None:
        return None
    left_out = len(data.splits["train"]) if data is not None and split == UNSEEN else 0
    return Overlap(int(seen.sum()), 0 if chosen_by is None else int((chosen_by & ~seen).sum()), left_out)


def overlap_notes(overlap: Overlap | None, images: int) -> list[str]:
    """Return a warning if training images are evaluated."""
    if overlap is None or not overlap.train:
        return []
    return [f"the model was trained on {overlap.train:,} of the {images:,} images that are evaluated: it knows them"]


def _find_in_training(images: Split, models: Sequence[ViT], split: str) -> np.ndarray | None:
    """Return a mask of the images that are in this split of the training of any model; None if that is not known."""
    keys = [model.info.image_keys[split] for model in models if split in model.info.image_keys]
    hashes = images.known_hashes() if keys else None
    return None if hashes is None else find_images(hashes, np.concatenate(keys))


def _was_trained_on(model: ViT, source: str | Path, options: dict[str, Any]) -> bool:
    """Return True if the model was trained on the same images. Without hashes of them, the same path is enough."""
    path, fingerprint = model.info.recipe.get("data"), model.info.data.get("fingerprint")
    same_path = path and (path == source or Path(path).expanduser().resolve() == Path(source).expanduser().resolve())
    if same_path and not (fingerprint and model.info.image_keys):
        return True
    data = open_data(source, **options, **model.info.split_settings) if fingerprint else None
    return data is not None and data.fingerprint == fingerprint
