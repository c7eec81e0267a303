"""How good is a model, how sure may one be of that, and where does it fail?"""

from vitkit.callable_package import make_callable
from vitkit.evaluate.compare import Comparison, Mean, compare, mean_interval
from vitkit.evaluate.evaluation import Evaluation, evaluate_predictions
from vitkit.evaluate.metrics import Predictions, Temperature, fit_temperature, scaled_by_halves
from vitkit.evaluate.plots import plot_classes, plot_confusion, plot_reliability
from vitkit.evaluate.run import SizeResult, evaluate, predict, predict_logits, sweep

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

make_callable(__name__, evaluate)
