"""Weights to start from: loaded, changed as far as a recipe may change them, and given a classifier."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vitkit.data.dataset import Split
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError
from vitkit.features import cached_features, fit_linear_probe
from vitkit.features.extract import set_head, widen_pooling
from vitkit.model import ViT, create_model
from vitkit.training.log import Log
from vitkit.training.recipe import Recipe
from vitkit.weights.load import load_model

FREE = ("pooling", "dropout", "attention_dropout", "drop_path")  # settings that no tensor below the classifier hangs on


def start_from(recipe: Recipe) -> ViT | None:
    if not recipe.init:
        if recipe.head == "probe":
            raise ConfigError("head=probe fits a classifier to the features of given weights: name them with --init")
        return None
    return load_model(recipe.init)


def adapt(
    start: ViT, changes: Mapping[str, Any], class_names: Sequence[str], size: tuple[int, int], widen: bool = False
) -> ViT:
    """With a classifier for these classes: its own where it is for the same ones, else zeros.

    With `widen`, a new classifier gets more features (`widen_pooling`). Another image size needs no change: the
    position table is resampled in every forward.
    """
    if fixed := [name for name in changes if name not in FREE]:
        raise ConfigError(
            f"config.{fixed[0]} cannot be changed together with --init: the weights bring their own; "
            f"free are {', '.join(FREE)}"
        )
    if any(side % patch for side, patch in zip(size, start.config.patch_size, strict=True)):
        raise ConfigError(f"preprocess.size={size}: must be a multiple of the weights' patch {start.config.patch_size}")
    known = tuple(start.info.class_names)
    config = start.config.replace(
        **{**(widen_pooling(start.config) if widen and known != tuple(class_names) else {}), **changes}
    )
    if known != tuple(class_names) or config.pooling != start.config.pooling:
        start.reset_classifier(0)
    model = create_model(config.replace(num_classes=start.config.num_classes, head_hidden=start.config.head_hidden))
    model.load_state_dict(start.state_dict())
    model.info = start.info
    if not model.config.num_classes:
        model.reset_classifier(len(class_names))
    return model


def needs_head(recipe: Recipe, model: ViT) -> bool:
    return recipe.head == "probe" and not model.info.class_names


def fit_head(model: ViT, train: Split, preprocess: Preprocess, seed: int, weights: Tensor | None, log: Log) -> None:
    """Linear probing before fine-tuning: steps from a fitted classifier bend the features less (Kumar et al. 2022)."""
    began = time.monotonic()
    features = cached_features(model, train, preprocess)
    read = time.monotonic()
    classes = model.config.num_classes
    probe = fit_linear_probe(features.values, train.labels[features.indices], classes, seed=seed, class_weights=weights)
    set_head(model, probe.weight, probe.bias)
    log.say(
        f"features of {len(features):,} images in {read - began:.1f} s; linear classifier fitted in "
        f"{time.monotonic() - read:.1f} s: {probe.cv_accuracy:.2%} cross-validated training accuracy "
        f"(λ = {probe.regularization:.1e})"
    )
    log.record(0, epoch=0.0, probe_strength=probe.regularization, probe_left_out_top1=probe.cv_accuracy)
