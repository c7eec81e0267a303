"""Images in, ranked labels out; and the model in other runtimes."""

from vitkit.infer.pictures import find_images
from vitkit.infer.predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor", "find_images"]
