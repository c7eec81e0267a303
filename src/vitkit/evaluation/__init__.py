"""How good is a model, how sure may one be of that, and where does it fail?"""

from vitkit.evaluation.compare import Comparison, Mean, compare, mean_interval
from vitkit.evaluation.evaluation import Evaluation, evaluate_predictions
from vitkit.evaluation.metrics import Predictions, Temperature, fit_temperature, scaled_by_halves
from vitkit.evaluation.plots import plot_classes, plot_confusion, plot_reliability
from vitkit.evaluation.predict import SizeResult, evaluate, predict, predict_logits, sweep

__all__ = [
    "Comparison",
    "Evaluation",
    "Mean",
    "Predictions",
    "SizeResult",
    "Temperature",
    "compare",
    "evaluate",
    "evaluate_predictions",
    "fit_temperature",
    "mean_interval",
    "plot_classes",
    "plot_confusion",
    "plot_reliability",
    "predict",
    "predict_logits",
    "scaled_by_halves",
    "sweep",
]
