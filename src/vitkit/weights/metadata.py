"""What travels with the weights, and what loading foreign ones had to assume."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo, ViTConfig


@dataclass(frozen=True)
class LoadReport:
    """How foreign weights became a model: every tensor of the file is counted as mapped or named as dropped."""

    source: str
    layout: str  # "vitkit" for a model folder
    config: ViTConfig
    mapped: int = 0
    dropped: Mapping[str, str] = field(default_factory=dict)  # name → why the model needs it not
    filled: Mapping[str, str] = field(default_factory=dict)  # our name → why it is zero
    assumed: Sequence[str] = ()  # what neither the tensors nor a file beside them say
    adapted: Sequence[str] = ()  # what was changed because it was asked for

    def origin(self) -> dict[str, Any]:
        """What is worth keeping with the model."""
        reasons = list(self.dropped.values())
        return {
            "source": self.source,
            "layout": self.layout,
            "assumed": list(self.assumed),
            "adapted": list(self.adapted),
            "dropped": {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)},
        }


def require_metadata(
    model: nn.Module,
    source: object,
    class_names: Sequence[str] | None = None,
    preprocess: Preprocess | None = None,
) -> tuple[Sequence[str], Preprocess]:
    """Return class names and preprocessing: the given ones, else the model's own. Raise if either is unknown."""
    info = getattr(model, "info", ModelInfo())
    class_names, preprocess = class_names or info.class_names, preprocess or info.preprocess
    if preprocess is None or not class_names:
        missing, name = ("preprocessing", "preprocess") if preprocess is None else ("class names", "class_names")
        option = f"--{name.replace('_', '-')} FILE"
        raise WeightsError(
            f"{source} has no {missing}, so its predictions would have no meaning: add {option} ({name}= in Python), "
            f"or write a model folder that has them: `vitkit convert … --to vitkit {option}`"
        )
    return class_names, preprocess


@dataclass(frozen=True)
class SidecarConfig:
    config: Mapping[str, Any] = field(default_factory=dict)  # of ViTConfig's fields, those that are told
    class_names: Sequence[str] = ()
    preprocess: Preprocess | None = None
    license: str = ""
    notes: Sequence[str] = ()  # what was found and not used


def square(value: Any) -> Any:
    """JSON has lists, and one number for a square."""
    return (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value
