"""How commands open the MODEL they are given: what had to be assumed of it is said, on stderr."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vitkit.cli.args import flag

if TYPE_CHECKING:
    from vitkit.model import ViT, ViTConfig
    from vitkit.weights.metadata import LoadReport


def open_model(
    source: str, class_names: str | None = None, preprocess: str | None = None, device: str = "cpu"
) -> "ViT":
    """`class_names` and `preprocess` are for weights that bring none: a model's own are not to be mistaken."""
    from vitkit.errors import UsageError
    from vitkit.weights.load import load_with_report
    from vitkit.weights.model_dir import read_metadata

    for name, given in (("class_names", class_names), ("preprocess", preprocess)):
        if given and (own := read_metadata(source)) and getattr(own, name):
            raise UsageError(f"{source} brings its own {name.replace('_', ' ')}: leave out {flag(name)}")
    model, report = load_with_report(source, class_names=class_names, preprocess=preprocess)
    print_assumptions(report)
    return model.to(device)


def print_assumptions(report: "LoadReport") -> None:
    for line in report.assumed:
        print(f"vitkit: assumed: {line}", file=sys.stderr)


def is_checkpoint(model: str) -> bool:
    """A place where weights are, not the name of a variant."""
    from vitkit.weights.hub import is_name

    return Path(model).exists() or is_name(model)


def open_config(model: str) -> "ViTConfig":
    """Of a variant by its name, or of anything that holds a model."""
    from vitkit.model.variants import get_config
    from vitkit.weights.load import read_config

    return read_config(model) if is_checkpoint(model) else get_config(model)
