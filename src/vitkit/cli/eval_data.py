"""Which images `vitkit eval` judges a model by."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitkit.data.dataset import Dataset
    from vitkit.model import ViT

ALL = "all"


def open_judged(spec: str, models: "Sequence[ViT]", split: str | None, **opening: Any) -> "Dataset":
    """The splits that the first model was trained with, drawn anew by its seed where the data have none.

    Of images without splits that no model has learned from, all are fit to judge by: one split, `all`.
    """
    from vitkit.data.open import open_data

    data = open_data(spec, **opening, **drawn_by(models[0]))
    if split or "test" in data.splits:
        return data
    if data.val_was_drawn and not any(_learned_from(model, spec, opening) for model in models):
        data = open_data(spec, **opening, val_fraction=0.0)
        note = f"{data.name} has no splits, and the model has not learned from it: all of its images are judged"
        data = replace(data, splits={ALL: data.splits["train"]}, notes=(note,))
    for note in data.notes:
        print(f"vitkit: {note}", file=sys.stderr)
    return data


def drawn_by(model: "ViT") -> dict[str, Any]:
    return model.info.split_settings


def _learned_from(model: "ViT", spec: str, opening: dict[str, Any]) -> bool:
    """The same place, or the same images elsewhere."""
    from vitkit.data.open import open_data

    place = model.info.recipe.get("data")
    if place and (place == spec or Path(place).expanduser().resolve() == Path(spec).expanduser().resolve()):
        return True
    known = model.info.data.get("fingerprint")
    return known is not None and known == open_data(spec, **opening, **drawn_by(model)).fingerprint
