"""The teacher of a distillation: a frozen model whose predictions the student learns from."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitkit.data.dataset import Split
from vitkit.data.preprocess import Preprocess
from vitkit.data.rng import SampleKeys
from vitkit.errors import ConfigError, UsageError
from vitkit.evaluation.label_map import unique_indices
from vitkit.features.cache import cached_features
from vitkit.features.extract import classify_features
from vitkit.model import ViT
from vitkit.training.loss import to_teacher_targets
from vitkit.training.recipe import Distill, Recipe
from vitkit.weights.load import load_model
from vitkit.weights.metadata import require_metadata
from vitkit.weights.state_dict import hash_weights


@dataclass(frozen=True)
class Teacher:
    """Computes the targets of a distillation, in the class order of the student."""

    model: ViT
    settings: Distill
    student_preprocess: Preprocess
    preprocess: Preprocess
    class_order: Tensor  # the teacher's index of each of the student's classes
    cached_logits: Tensor | None  # (N, K) of the unaugmented training images, if distill.sees=original

    def cached_targets(self, keys: SampleKeys) -> Tensor | None:
        """Return the teacher's targets for the unaugmented images of a batch, from cached logits.

        Return None if there is no cache. The caller applies mixup and CutMix to the targets, as to the labels.
        """
        if self.cached_logits is None:
            return None
        logits = self.cached_logits[torch.from_numpy(keys.index)].to(self.class_order.device)
        return to_teacher_targets(logits, self.settings)

    @torch.no_grad()
    def targets(self, images: Tensor) -> Tensor:
        """Return the teacher's targets for images that are resized and normalised for the student."""
        mean, std, student_mean, student_std = (
            torch.tensor(v, device=images.device)[:, None, None]
            for p in (self.preprocess, self.student_preprocess)
            for v in (p.mean, p.std)
        )
        converted = (images * student_std + student_mean - mean) / std
        if tuple(converted.shape[-2:]) != self.preprocess.size:
            converted = F.interpolate(converted, size=self.preprocess.size, mode="bicubic", antialias=True)
        return to_teacher_targets(self.model(converted)[:, self.class_order], self.settings)


def load_teacher(recipe: Recipe) -> tuple[Recipe, ViT | None]:
    """Return the recipe with the SHA-256 of the teacher's weights, and the teacher; None if the recipe has none.

    A resumed run raises if the SHA-256 differs from that of its first start.
    """
    d = recipe.distill
    if not d.teacher:
        return recipe, None
    model = load_model(d.teacher).requires_grad_(False)
    digest = hash_weights(model)
    if d.teacher_sha256 not in ("", digest):
        raise UsageError(f"the weights of the teacher {d.teacher} have changed since this run was started")
    return recipe.replace(distill=dataclasses.replace(d, teacher_sha256=digest)), model


def make_teacher(
    d: Distill, model: ViT, class_names: Sequence[str], student: Preprocess, train: Split, device: torch.device
) -> Teacher:
    """Return the teacher, ready for training. Raise if it lacks a class of the student or takes other channels."""
    names, preprocess = require_metadata(model, d.teacher)
    known = {name.strip() for name in names}
    if unknown := [name for name in class_names if name.strip() not in known]:
        raise ConfigError(
            f"the teacher {d.teacher} does not know {len(unknown)} of the {len(class_names)} classes, such as "
            f"{unknown[0]!r}: fine-tune it on this data first"
        )
    if preprocess.channels != student.channels:
        raise ConfigError(
            f"the teacher {d.teacher} takes {preprocess.channels} channels, the student {student.channels}: "
            "use a teacher for the same channels"
        )
    order = torch.tensor(unique_indices(class_names, names, f"the teacher {d.teacher}"))
    model = model.to(device).eval()
    cached = _train_logits(model, train, preprocess)[:, order] if d.sees == "original" else None
    return Teacher(model, d, student, preprocess, order.to(device), cached)


@torch.no_grad()
def _train_logits(model: ViT, train: Split, preprocess: Preprocess) -> Tensor:
    """Return the teacher's logits for all training images, computed from cached features."""
    features = cached_features(model, train, preprocess)
    if len(features) != len(train):
        raise ConfigError(
            f"the teacher cannot read {len(train) - len(features)} of the training images: remove them from the data"
        )
    values = torch.from_numpy(features.values).to(next(model.parameters()).device)
    return classify_features(model, values).float().cpu()
