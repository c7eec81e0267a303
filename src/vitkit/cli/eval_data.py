"""Which images `vitkit eval` judges a model by."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitkit.data.source import Dataset
    from vitkit.model import ViT

ALL = "all"


def open_judged(spec: str, models: "Sequence[ViT]", split: str | None, **opening: Any) -> "Dataset":
    """The splits that the first model was trained with, drawn anew by its seed where the data have none.

    Of images without splits that no model has learned from, all are fit to judge by: one split, `all`.
    """
    from vitkit.data.source import open_data

    opened = [open_data(spec, **opening, **drawn_by(model)) for model in models]
    data = opened[0]
    if split or "test" in data.splits:
        return data
    if data.made_val and not any(_learned_from(m, spec, d) for m, d in zip(models, opened, strict=True)):
        data = open_data(spec, **opening, val_fraction=0.0)
        note = f"{data.name} has no splits, and the model has not learned from it: all of its images are judged"
        data = replace(data, splits={ALL: data.splits["train"]}, notes=(note,))
    for note in data.notes:
        print(f"vitkit: {note}", file=sys.stderr)
    return data


def drawn_by(model: "ViT") -> dict[str, Any]:
    """What decides which images are set aside for validation, where a data set does not say so itself."""
    recipe = model.info.recipe if model.info else None
    return {key: recipe[key] for key in ("seed", "val_fraction")} if recipe else {}


def _learned_from(model: "ViT", spec: str, data: "Dataset") -> bool:
    """The same place, or the same images elsewhere."""
    if model.info is None:
        return False
    place = (model.info.recipe or {}).get("data")
    if place and (place == spec or Path(place).expanduser().resolve() == Path(spec).expanduser().resolve()):
        return True
    known = (model.info.data or {}).get("fingerprint")
    return known is not None and known == data.fingerprint
