"""Evaluate models: accuracy with confidence intervals, calibration, errors per class, comparisons."""

from vitkit.evaluation.comparison import Comparison, MeanEstimate, compare, mean_interval
from vitkit.evaluation.evaluation import Evaluation, evaluate_predictions
from vitkit.evaluation.metrics import Predictions, Temperature, cross_fitted_temperature, fit_temperature
from vitkit.evaluation.plots import plot_classes, plot_confusion, plot_reliability
from vitkit.evaluation.predict import ResolutionResult, evaluate, predict_logits, predict_split, resolution_sweep

__all__ = [
    "Comparison", "Evaluation", "MeanEstimate", "Predictions", "ResolutionResult", "Temperature", "compare",
    "cross_fitted_temperature", "evaluate", "evaluate_predictions", "fit_temperature", "mean_interval",
    "plot_classes", "plot_confusion", "plot_reliability", "predict_logits", "predict_split", "resolution_sweep",
]  # fmt: skip
