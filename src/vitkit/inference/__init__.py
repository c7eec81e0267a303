"""Predicts labels of images, with a choice of engines."""

from vitkit.inference.image_inputs import find_images
from vitkit.inference.predictor import Prediction, Predictor

__all__ = ["Prediction", "Predictor", "find_images"]
