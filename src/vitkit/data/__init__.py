"""Images in, batches out: readers, splits, decoding, sampling, augmentation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitkit.data.dataset import Dataset as Dataset
    from vitkit.data.dataset import Split as Split
    from vitkit.data.open import open_data as open_data
    from vitkit.data.preprocess import Preprocess as Preprocess

# The public names and their modules. A module is imported at the first use of one of its names.
_MODULE_OF = {"Dataset": "dataset", "Split": "dataset", "Preprocess": "preprocess", "open_data": "open"}

__all__ = ["Dataset", "Preprocess", "Split", "open_data"]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'vitkit.data' has no attribute {name!r}")
    return getattr(import_module(f"vitkit.data.{_MODULE_OF[name]}"), name)
