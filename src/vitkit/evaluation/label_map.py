"""Map the labels of a data set to the class indices of a model: by name, or by number if the data have no names."""

from collections.abc import Sequence

import numpy as np

from vitkit.data.dataset import Dataset, Split
from vitkit.errors import DataError


def match_labels(data: Dataset, split: Split, class_names: Sequence[str]) -> Split:
    """Return the split with labels that index `class_names`. A class that the model does not have is an error."""
    indices = {name: i for i, name in enumerate(class_names)}
    if not data.has_class_names:
        targets = [int(name) for name in data.class_names]
        if targets and max(targets) >= len(class_names):
            raise DataError(f"{data.name} has the label {max(targets)}, but the model has {len(class_names)} classes")
    elif unknown := [name for name in data.class_names if name not in indices]:
        shown = ", ".join(map(repr, unknown[:3]))
        raise DataError(f"{data.name} has {len(unknown)} classes that the model does not have, such as {shown}")
    else:
        targets = [indices[name] for name in data.class_names]
    return Split(split.images, np.array(targets, dtype=np.int64)[split.labels])
