"""vitkit: Vision Transformers that read like the paper and work like a tool."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitkit.version import __version__

if TYPE_CHECKING:
    from vitkit.evaluation import evaluate as evaluate
    from vitkit.explanation import explain as explain
    from vitkit.inference import Predictor as Predictor
    from vitkit.model import ViT as ViT
    from vitkit.model import ViTConfig as ViTConfig
    from vitkit.model import create_model as create_model
    from vitkit.training import Recipe as Recipe
    from vitkit.training.train import train as train
    from vitkit.weights.load import load_model as load_model
    from vitkit.weights.model_dir import save_model as save_model

# Where each public name lives. Modules are imported at first use: `import vitkit` costs next to nothing, and a model
# can be created without loading what only training or plotting needs.
_HOMES = {
    "Predictor": "vitkit.inference",
    "Recipe": "vitkit.training",
    "ViT": "vitkit.model",
    "ViTConfig": "vitkit.model",
    "create_model": "vitkit.model",
    "evaluate": "vitkit.evaluation",
    "explain": "vitkit.explanation",
    "load_model": "vitkit.weights.load",
    "save_model": "vitkit.weights.model_dir",
    "train": "vitkit.training",
}

__all__ = ["__version__", *_HOMES]  # the table above is the one list


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vitkit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
