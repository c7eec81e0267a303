"""Images in, ranked labels out; and the model in other runtimes."""

from vitkit.inference.image_inputs import find_images
from vitkit.inference.predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor", "find_images"]
