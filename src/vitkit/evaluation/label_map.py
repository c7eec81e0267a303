"""The labels of a data set in the numbering of a model: by name where the data set has names, by index where not."""

from collections.abc import Sequence

import numpy as np

from vitkit.data.dataset import Dataset, Split
from vitkit.errors import DataError


def match_labels(data: Dataset, split: Split, class_names: Sequence[str]) -> Split:
    """The split with labels that index `class_names`; a class that the model does not know is an error."""
    numbers = {name: i for i, name in enumerate(class_names)}
    if not data.named:
        targets = [int(name) for name in data.class_names]
        if targets and max(targets) >= len(class_names):
            raise DataError(f"{data.name} has the label {max(targets)}, the model only {len(class_names)} classes")
    elif unknown := [name for name in data.class_names if name not in numbers]:
        shown = ", ".join(map(repr, unknown[:3]))
        raise DataError(f"{data.name} has {len(unknown)} classes that the model does not know, such as {shown}")
    else:
        targets = [numbers[name] for name in data.class_names]
    return Split(split.images, np.array(targets, dtype=np.int64)[split.labels])
