"""Images in, batches out: readers, splits, decoding, sampling, augmentation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitkit.data.dataset import ArrayImages as ArrayImages
    from vitkit.data.dataset import Dataset as Dataset
    from vitkit.data.dataset import FileImages as FileImages
    from vitkit.data.dataset import ImageSource as ImageSource
    from vitkit.data.dataset import Split as Split
    from vitkit.data.epoch_loader import EpochLoader as EpochLoader
    from vitkit.data.epoch_loader import PlainLoader as PlainLoader
    from vitkit.data.epoch_loader import SplitDataset as SplitDataset
    from vitkit.data.epoch_loader import make_loader as make_loader
    from vitkit.data.open import open_data as open_data
    from vitkit.data.preprocess import Preprocess as Preprocess
    from vitkit.data.training_batch import TrainingBatch as TrainingBatch
    from vitkit.data.transforms import Augment as Augment

# A module is imported at the first use of one of its names, so that a progress bar does not load torch.
_PUBLIC = {
    "dataset": ["ArrayImages", "Dataset", "FileImages", "ImageSource", "Split"],
    "epoch_loader": ["EpochLoader", "PlainLoader", "SplitDataset", "make_loader"],
    "open": ["open_data"],
    "preprocess": ["Preprocess"],
    "training_batch": ["TrainingBatch"],
    "transforms": ["Augment"],
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'vitkit.data' has no attribute {name!r}")
    return getattr(import_module(f"vitkit.data.{_MODULE_OF[name]}"), name)
