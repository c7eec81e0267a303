"""`ModelInfo`: the metadata that is stored with a model's weights."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitkit.data.preprocess import Preprocess


@dataclass(frozen=True)
class ModelInfo:
    """The attribute `model.info`: `load_model` sets it, `save_model` writes it. Empty for a new model."""

    class_names: Sequence[str] = ()
    preprocess: "Preprocess | None" = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)  # name, fingerprint and counts of the training data
    metrics: Mapping[str, Any] = field(default_factory=dict)
    license: str = ""
    origin: Mapping[str, Any] = field(default_factory=dict)  # of weights from another library: LoadReport.origin()
    # The training images, "train" and "val" → sorted uint64, as `vitkit.data.fingerprint.image_keys` returns them
    image_keys: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def split_settings(self) -> dict[str, Any]:
        """Arguments with which `open_data` draws the validation split that training used."""
        return {key: self.recipe[key] for key in ("seed", "val_fraction") if key in self.recipe}

    def replace(self, **changes: Any) -> "ModelInfo":
        return dataclasses.replace(self, **changes)
