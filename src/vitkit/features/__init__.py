"""Features of frozen models: one vector per image, with k-NN and linear classifiers on top."""

from vitkit.features.cache import cached_features
from vitkit.features.extract import Features, extract_features, require_preprocess
from vitkit.features.knn import choose_k, knn_predict
from vitkit.features.knn_eval import KNNResult, evaluate_knn
from vitkit.features.linear import LinearProbe, fit_linear_probe

__all__ = [
    "Features", "KNNResult", "LinearProbe", "cached_features", "choose_k", "evaluate_knn", "extract_features",
    "fit_linear_probe", "knn_predict", "require_preprocess",
]  # fmt: skip
