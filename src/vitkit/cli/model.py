"""How commands open the MODEL they are given: what had to be assumed of it is said, on stderr."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vitkit.model import ViT


def open_model(source: str, class_names: str | None = None, preprocess: str | None = None) -> "ViT":
    from vitkit.weights.folder import read_model

    model, report = read_model(source, class_names=class_names, preprocess=preprocess)
    for line in report.assumed:
        print(f"vitkit: assumed: {line}", file=sys.stderr)
    return model
