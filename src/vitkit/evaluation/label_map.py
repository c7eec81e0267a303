"""Map the labels of a data set to the class indices of a model.

Names are matched with the model's class names. Labels that are whole numbers are matched with class names if all of
them are class names, else they are class indices.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from torch import nn

from vitkit.data.dataset import Dataset, Split
from vitkit.errors import DataError
from vitkit.model import ModelInfo, ViT


def match_labels(data: Dataset, split: Split, class_names: Sequence[str]) -> Split:
    """Return the split with labels that index `class_names`. A class that the model does not have is an error."""
    targets = _match_names(data, class_names) if data.has_class_names else _match_numbers(data, class_names)[0]
    return Split(split.images, np.array(targets, dtype=np.int64)[split.labels], split.hashes)


def label_notes(data: Dataset, class_names: Sequence[str]) -> list[str]:
    """Return a note if labels that are whole numbers could be class names as well as class indices."""
    note = "" if data.has_class_names else _match_numbers(data, class_names)[1]
    return [note] if note else []


def find_class_names(model: nn.Module, data: Dataset) -> Sequence[str]:
    """Return the model's class names. If it has none, labels that are whole numbers are its class indices.

    The names are then those that the data have for all indices, else the indices. Return () if the labels are names.
    """
    own = getattr(model, "info", ModelInfo()).class_names
    classes = model.config.num_classes if isinstance(model, ViT) else 0
    if own or not classes:
        return own
    if data.labels_are_indices and data.has_class_names:
        return data.class_names if len(data.class_names) == classes else ()
    return [str(i) for i in range(classes)] if all(name.isdecimal() for name in data.class_names) else ()


def unique_indices(names: Sequence[str], class_names: Sequence[str], owner: str) -> list[int]:
    """Return the index in `class_names` of each name, which must be among them. Raise if `owner` has it twice."""
    if list(names) == list(class_names):
        return list(range(len(names)))
    positions = defaultdict(list)
    for i, name in enumerate(class_names):
        positions[name.strip()].append(i)
    for name in names:
        if len(found := positions[name.strip()]) > 1:
            shown = " and ".join(map(str, found))
            raise DataError(f"{owner} has several classes named {name!r} ({shown}): use class indices as labels")
    return [positions[name.strip()][0] for name in names]


def _match_names(data: Dataset, class_names: Sequence[str]) -> list[int]:
    known = {name.strip() for name in class_names}
    if unknown := [name for name in data.class_names if name.strip() not in known]:
        shown = ", ".join(map(repr, unknown[:3]))
        raise DataError(f"{data.name} has {len(unknown)} classes that the model does not have, such as {shown}")
    return unique_indices(data.class_names, class_names, "the model")


def _match_numbers(data: Dataset, class_names: Sequence[str]) -> tuple[list[int], str]:
    """Return the class index of each label, and a note if the other interpretation would give other classes."""
    labels = [int(name) for name in data.class_names]
    used = np.unique(np.concatenate([split.labels for split in data.splits.values()]))
    present = [labels[k] for k in used]
    named = {int(name): i for i, name in enumerate(class_names) if name.strip().isdecimal()}
    if all(label in named for label in present):
        shifted = next((label for label in present if named[label] != label), None)
        note = f"the labels of {data.name} are matched with the model's class names: {shifted} is not a class index"
        return [named.get(label, -1) for label in labels], "" if shifted is None else note
    if max(present) >= len(class_names):
        raise DataError(f"{data.name} has the label {max(present)}, but the model has {len(class_names)} classes")
    unnamed = next(label for label in present if label not in named)
    note = (
        f"the labels of {data.name} are class indices, not the model's class names, which are numbers too: "
        f"{unnamed} is not one of them"
    )
    return labels, note if any(named.get(label, label) != label for label in present) else ""
