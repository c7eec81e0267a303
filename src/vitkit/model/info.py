"""The metadata that travels with a model's weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitkit.data.preprocess import Preprocess


@dataclass(frozen=True)
class ModelInfo:
    """`load_model` leaves it in `model.info`; `save_model` writes it back."""

    class_names: Sequence[str] = ()
    preprocess: "Preprocess | None" = None
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
