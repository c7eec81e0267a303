"""What travels with the weights, and what loading foreign ones had to assume."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ViT, ViTConfig


@dataclass(frozen=True)
class ModelInfo:
    """`load_model` leaves it in `model.info`; `save_model` writes it back."""

    class_names: Sequence[str] = ()
    preprocess: Preprocess | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # name, fingerprint and counts of the training data
    metrics: Mapping[str, Any] = field(default_factory=dict)
    license: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict)  # of weights that came from elsewhere: LoadReport.origin()

    @property
    def drawn_by(self) -> dict[str, Any]:
        """What decided which images were set aside for validation, where the data did not say so: for `open_data`."""
        return {key: self.recipe[key] for key in ("seed", "val_fraction") if key in self.recipe}

    def replace(self, **changes: Any) -> "ModelInfo":
        return dataclasses.replace(self, **changes)


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


def names_and_preprocess(model: ViT, source: object) -> tuple[Sequence[str], Preprocess]:
    """What a model needs in order to answer; refused where it brings them not, for its answers would mean nothing."""
    info: ModelInfo | None = model.info
    if info is None or info.preprocess is None or not info.class_names:
        lacks = "preprocess" if info is None or info.preprocess is None else "class_names"
        raise WeightsError(
            f"{source} brings no class names or no preprocessing: its answers would have no meaning; "
            f"give {lacks}= in Python, or make a model folder that has them: `vitkit convert … --to vitkit "
            f"--{lacks.replace('_', '-')} FILE`"
        )
    return info.class_names, info.preprocess
