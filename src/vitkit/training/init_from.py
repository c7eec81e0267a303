"""Start from pretrained weights (`--init`): load them, adapt them to the classes, fit a linear probe."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from vitkit.atomic import sha256
from vitkit.data.dataset import Split
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError
from vitkit.features import cached_features, fit_linear_probe
from vitkit.features.extract import set_head, widen_pooling
from vitkit.model import ViT, create_model
from vitkit.training.log import Logger
from vitkit.training.recipe import Recipe
from vitkit.weights.load import load_model
from vitkit.weights.state_dict import hash_weights

CHANGEABLE = ("pooling", "dropout", "attention_dropout", "drop_path")  # no tensor below the classifier depends on these


def load_init(recipe: Recipe) -> ViT | None:
    """Return the pretrained model that the recipe names, or None for a run from scratch."""
    if recipe.init:
        return load_model(recipe.init)
    if recipe.head == "probe":
        raise ConfigError("head=probe needs pretrained weights: name them in `init`")
    return None


def hash_init(init: ViT | None) -> str:
    """Return the SHA-256 of pretrained weights and of the preprocessing that they bring; empty without any."""
    if init is None:
        return ""
    brought = init.info.preprocess.to_dict() if init.info.preprocess else None
    return sha256(f"{hash_weights(init)} {json.dumps(brought, sort_keys=True)}".encode())


def adapt_to_classes(
    model: ViT, changes: Mapping[str, Any], class_names: Sequence[str], size: tuple[int, int], widen: bool = False
) -> ViT:
    """Return the model with a classifier for `class_names`: its own if it has the same classes, else one of zeros.

    With `widen`, a new classifier gets more features (`widen_pooling`). A new image size needs no change, because the
    position table is resampled in every forward.
    """
    if "image_size" in changes:
        raise ConfigError("config.image_size cannot be changed together with init: set preprocess.size instead")
    if fixed := [name for name in changes if name not in CHANGEABLE]:
        raise ConfigError(
            f"config.{fixed[0]} cannot be changed together with init, because the weights define it; "
            f"only {', '.join(CHANGEABLE)} can"
        )
    if not model.config.accepts(size):
        raise ConfigError(f"preprocess.size={size}: must be a multiple of the weights' patch {model.config.patch_size}")
    same_classes = tuple(model.info.class_names) == tuple(class_names)
    wider = widen_pooling(model.config) if widen and not same_classes else {}
    config = model.config.replace(**{**wider, **changes})
    if not same_classes or config.pooling != model.config.pooling:
        model.reset_classifier(0)
    config = config.replace(num_classes=model.config.num_classes, head_hidden=model.config.head_hidden)
    adapted = create_model(config, model_class=type(model))
    adapted.load_state_dict(model.state_dict())
    adapted.info = model.info
    if not adapted.config.num_classes:
        adapted.reset_classifier(len(class_names))
    return adapted


def needs_probe(recipe: Recipe, model: ViT) -> bool:
    """Return True if the recipe asks for a linear probe and the classifier is new: it then has no class names."""
    return recipe.head == "probe" and not model.info.class_names


def fit_probe_head(
    model: ViT, train: Split, preprocess: Preprocess, seed: int, class_weights: Tensor | None, log: Logger
) -> None:
    """Fit a linear probe and set it as classifier. Fine-tuning then distorts the features less (Kumar et al. 2022)."""
    started = time.monotonic()
    features = cached_features(model, train, preprocess)
    extracted = time.monotonic()
    labels, classes = train.labels[features.indices], model.config.num_classes
    probe = fit_linear_probe(features.values, labels, classes, seed=seed, class_weights=class_weights)
    set_head(model, probe.weight, probe.bias)
    log.info(
        f"features of {len(features):,} images in {extracted - started:.1f} s; linear classifier fitted in "
        f"{time.monotonic() - extracted:.1f} s: {probe.cv_accuracy:.2%} cross-validated training accuracy "
        f"(λ = {probe.regularization:.1e})"
    )
    log.record(0, epoch=0.0, probe_strength=probe.regularization, probe_left_out_top1=probe.cv_accuracy)
