"""Images in, ranked labels out."""

from vitkit.infer.predictor import Prediction, Predictor, find_images

__all__ = ["Prediction", "Predictor", "find_images"]
