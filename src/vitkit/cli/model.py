"""How commands open the MODEL they are given: what had to be assumed of it is said, on stderr."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vitkit.model import ViT, ViTConfig


def open_model(
    source: str, class_names: str | None = None, preprocess: str | None = None, device: str = "cpu"
) -> "ViT":
    """`class_names` and `preprocess` are for weights that bring none: a model's own are not to be mistaken."""
    from vitkit.errors import UsageError
    from vitkit.weights.folder import own_info, read_model

    own = own_info(source)
    for option, given in (("class_names", class_names), ("preprocess", preprocess)):
        if given and own and getattr(own, option):
            raise UsageError(f"{source} brings its own {option.replace('_', ' ')}: leave out --{_dashed(option)}")
    model, report = read_model(source, class_names=class_names, preprocess=preprocess)
    for line in report.assumed:
        print(f"vitkit: assumed: {line}", file=sys.stderr)
    return model.to(device)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def open_config(model: str) -> "ViTConfig":
    """Of a variant by its name, or of anything that holds a model."""
    from vitkit.model.variants import get_config
    from vitkit.weights.folder import read_config
    from vitkit.weights.hub import is_name

    return read_config(model) if Path(model).exists() or is_name(model) else get_config(model)
