"""What is known of foreign weights beside their tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vitkit.data.preprocess import Preprocess


@dataclass(frozen=True)
class Told:
    config: Mapping[str, Any] = field(default_factory=dict)  # of ViTConfig's fields, those that are told
    class_names: Sequence[str] = ()
    preprocess: Preprocess | None = None
    license: str = ""
    notes: Sequence[str] = ()  # what was found and not used


def square(value: Any) -> Any:
    """JSON has lists, and one number for a square."""
    return (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, list) else value
