"""The metadata of weights: sidecar configs, load reports, and a check that the required metadata is known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo, ViTConfig


@dataclass(frozen=True)
class SidecarConfig:
    """The metadata that another library stores in files next to its weights."""

    config: Mapping[str, Any] = field(default_factory=dict)  # fields of ViTConfig that the files define
    class_names: Sequence[str] = ()
    preprocess: Preprocess | None = None
    license: str = ""
    notes: Sequence[str] = ()  # what was found and not used
    architecture: str = ""  # the name of timm's architecture


@dataclass(frozen=True)
class LoadReport:
    """Describes how weights became a model. Every tensor of the file is counted as mapped or listed as dropped."""

    source: str
    layout: str  # "vitkit" for a model folder
    config: ViTConfig
    mapped: int = 0
    dropped: Mapping[str, str] = field(default_factory=dict)  # name → why the model does not need it
    filled: Mapping[str, str] = field(default_factory=dict)  # our name → why it is zero
    assumed: Sequence[str] = ()  # what neither the tensors nor the sidecar files show
    adapted: Sequence[str] = ()  # what was changed on request
    architecture: str = ""  # timm's name of the architecture, if it is known

    def origin(self) -> dict[str, Any]:
        """Return the part of the report that is stored with the model, in `ModelInfo.origin`."""
        reasons = list(self.dropped.values())
        return {
            "source": self.source,
            "layout": self.layout,
            "assumed": list(self.assumed),
            "adapted": list(self.adapted),
            "dropped": {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)},
        }


def require_metadata(
    model: nn.Module, source: object, class_names: Sequence[str] | None = None, preprocess: Preprocess | None = None
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


def as_pair(value: Any) -> Any:
    """Return a size from JSON as a tuple: one number is a square, a list is (height, width)."""
    return (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value
