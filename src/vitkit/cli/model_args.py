"""Open the MODEL argument of commands, and print what had to be assumed about it to stderr."""

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
    """Load a model. Refuse `class_names` or `preprocess` if the model has its own."""
    from vitkit.errors import UsageError
    from vitkit.weights.load import load_with_report
    from vitkit.weights.model_dir import read_metadata

    for name, given in (("class_names", class_names), ("preprocess", preprocess)):
        if given and (own := read_metadata(source)) and getattr(own, name):
            raise UsageError(f"{source} has its own {name.replace('_', ' ')}: remove {flag(name)}")
    model, report = load_with_report(source, class_names=class_names, preprocess=preprocess)
    print_assumptions(report)
    return model.to(device)


def print_assumptions(report: "LoadReport") -> None:
    for line in report.assumed:
        print(f"vitkit: assumed: {line}", file=sys.stderr)


def is_checkpoint(model: str) -> bool:
    """Return whether the argument is a path or a hub name, not the name of a variant."""
    from vitkit.weights.hub import is_name

    return Path(model).exists() or is_name(model)


def open_config(model: str) -> "tuple[ViTConfig, type[ViT]]":
    """Return the config and the class of a variant by name, or of anything that can be loaded."""
    from vitkit.model import ViT
    from vitkit.model.variants import get_config
    from vitkit.weights.load import read_config
    from vitkit.weights.model_dir import find_model_dir

    if not is_checkpoint(model):
        return get_config(model), ViT
    model_dir = find_model_dir(Path(model)) if Path(model).exists() else None
    return (model_dir.config, model_dir.model_class) if model_dir else (read_config(model), ViT)
