"""How commands open the MODEL they are given: what had to be assumed of it is said, on stderr."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vitkit.model import ViT, ViTConfig


def open_model(
    source: str, class_names: str | None = None, preprocess: str | None = None, device: str = "cpu"
) -> "ViT":
    from vitkit.weights.folder import read_model

    model, report = read_model(source, class_names=class_names, preprocess=preprocess)
    for line in report.assumed:
        print(f"vitkit: assumed: {line}", file=sys.stderr)
    return model.to(device)


def open_config(model: str) -> "ViTConfig":
    """Of a variant by its name, or of anything that holds a model."""
    from vitkit.model.variants import get_config
    from vitkit.weights.folder import read_config
    from vitkit.weights.hub import is_name

    return read_config(model) if Path(model).exists() or is_name(model) else get_config(model)
