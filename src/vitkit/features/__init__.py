"""What frozen weights say of images: one vector each, extracted once, and what can be read from it without training."""

from vitkit.features.cache import cached_features
from vitkit.features.extract import Features, extract, preprocess_of
from vitkit.features.knn import choose_k, knn
from vitkit.features.linear import Probe, fit_probe

__all__ = ["Features", "Probe", "cached_features", "choose_k", "extract", "fit_probe", "knn", "preprocess_of"]
