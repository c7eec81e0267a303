"""Images in, ranked labels out."""

from vitkit.infer.predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor"]
