"""vitkit: Vision Transformers that read like the paper and work like a tool."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitkit.version import __version__

if TYPE_CHECKING:
    from vitkit.data.dataset import Dataset as Dataset
    from vitkit.data.dataset import Split as Split
    from vitkit.data.epoch_loader import SplitDataset as SplitDataset
    from vitkit.data.epoch_loader import make_loader as make_loader
    from vitkit.data.open import open_data as open_data
    from vitkit.data.preprocess import Preprocess as Preprocess
    from vitkit.data.training_batch import TrainingBatch as TrainingBatch
    from vitkit.data.transforms import Augment as Augment
    from vitkit.errors import *  # noqa: F403  # all of them are public
    from vitkit.evaluation.comparison import Comparison as Comparison
    from vitkit.evaluation.comparison import compare as compare
    from vitkit.evaluation.evaluation import Evaluation as Evaluation
    from vitkit.evaluation.metrics import Predictions as Predictions
    from vitkit.evaluation.predict import evaluate as evaluate
    from vitkit.evaluation.predict import predict_split as predict_split
    from vitkit.evaluation.predictions import load_predictions as load_predictions
    from vitkit.explanation.result import Explanation as Explanation
    from vitkit.explanation.result import explain as explain
    from vitkit.export.export import ExportResult as ExportResult
    from vitkit.export.export import export_model as export_model
    from vitkit.export.parity import Parity as Parity
    from vitkit.export.parity import Tolerance as Tolerance
    from vitkit.features.extract import Features as Features
    from vitkit.features.extract import extract_features as extract_features
    from vitkit.inference.predictor import Prediction as Prediction
    from vitkit.inference.predictor import Predictor as Predictor
    from vitkit.model.config import ViTConfig as ViTConfig
    from vitkit.model.info import ModelInfo as ModelInfo
    from vitkit.model.variants import list_models as list_models
    from vitkit.model.vit import ViT as ViT
    from vitkit.model.vit import create_model as create_model
    from vitkit.report.compare_runs import RecipeComparison as RecipeComparison
    from vitkit.report.compare_runs import compare_runs as compare_runs
    from vitkit.report.write import write_report as write_report
    from vitkit.training.loggers import MetricLogger as MetricLogger
    from vitkit.training.loggers import MlflowLogger as MlflowLogger
    from vitkit.training.loggers import TensorBoardLogger as TensorBoardLogger
    from vitkit.training.loggers import WandbLogger as WandbLogger
    from vitkit.training.objective import Distillation as Distillation
    from vitkit.training.objective import Objective as Objective
    from vitkit.training.objective import Supervised as Supervised
    from vitkit.training.recipe import Budget as Budget
    from vitkit.training.recipe import Optimizer as Optimizer
    from vitkit.training.recipe import Recipe as Recipe
    from vitkit.training.recipe import Schedule as Schedule
    from vitkit.training.recipes import get_recipe as get_recipe
    from vitkit.training.results import Result as Result
    from vitkit.training.train import train as train
    from vitkit.weights.convert import ConvertReport as ConvertReport
    from vitkit.weights.convert import convert as convert
    from vitkit.weights.load import load_model as load_model
    from vitkit.weights.model_dir import save_model as save_model

# The public names of each module. A module is imported at the first use of one of its names: `import vitkit` stays
# cheap, and creating a model does not load what only training or plotting needs.
_PUBLIC = {
    "model.vit": ["ViT", "create_model"],
    "model.variants": ["list_models"],
    "model.config": ["ViTConfig"],
    "model.info": ["ModelInfo"],
    "weights.load": ["load_model"],
    "weights.model_dir": ["save_model"],
    "weights.convert": ["ConvertReport", "convert"],
    "data.open": ["open_data"],
    "data.dataset": ["Dataset", "Split"],
    "data.preprocess": ["Preprocess"],
    "data.transforms": ["Augment"],
    "data.epoch_loader": ["SplitDataset", "make_loader"],
    "data.training_batch": ["TrainingBatch"],
    "training.train": ["train"],
    "training.recipe": ["Budget", "Optimizer", "Recipe", "Schedule"],
    "training.objective": ["Distillation", "Objective", "Supervised"],
    "training.loggers": ["MetricLogger", "MlflowLogger", "TensorBoardLogger", "WandbLogger"],
    "training.recipes": ["get_recipe"],
    "training.results": ["Result"],
    "evaluation.predict": ["evaluate", "predict_split"],
    "evaluation.evaluation": ["Evaluation"],
    "evaluation.metrics": ["Predictions"],
    "evaluation.predictions": ["load_predictions"],
    "evaluation.comparison": ["Comparison", "compare"],
    "explanation.result": ["Explanation", "explain"],
    "inference.predictor": ["Prediction", "Predictor"],
    "features.extract": ["Features", "extract_features"],
    "export.export": ["ExportResult", "export_model"],
    "export.parity": ["Parity", "Tolerance"],
    "report.write": ["write_report"],
    "report.compare_runs": ["RecipeComparison", "compare_runs"],
    "errors": [
        "VitkitError",
        "UsageError",
        "ConfigError",
        "UnknownNameError",
        "InputError",
        "NotFiniteError",
        "DataError",
        "CorruptImageError",
        "WeightsError",
        "MissingExtraError",
        "WorkError",
        "Interrupted",
    ],
}
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

# Packages that `import vitkit` makes available without an import of their own
_PACKAGES = {module.partition(".")[0] for module in _PUBLIC}

__all__ = ["__version__", *_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"vitkit.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'vitkit' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"vitkit.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
