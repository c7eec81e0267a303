"""The teacher of a distillation: a frozen model that is asked about what the student is shown."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vitkit.data.dataset import Split
from vitkit.data.loader import Batch
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError, UsageError
from vitkit.features.cache import cached_features
from vitkit.features.extract import classify_features
from vitkit.model import ViT
from vitkit.training.loss import teacher_answers
from vitkit.training.recipe import Distill, Recipe
from vitkit.weights.load import load_model
from vitkit.weights.metadata import require_metadata
from vitkit.weights.state_dict import hash_weights


@dataclass(frozen=True)
class Teacher:
    """Answers in the student's numbering of the classes."""

    model: ViT
    settings: Distill
    student: Preprocess
    own: Preprocess
    order: Tensor  # its number of each of the student's classes
    table: Tensor | None  # (N, K) logits of the training images as they are, where it is to see them so

    def remembered(self, batch: Batch, device: torch.device) -> Tensor | None:
        """Its answers to the images of a batch as they were before any augmentation; to be mixed as the labels are."""
        if self.table is None:
            return None
        return teacher_answers(self.table[torch.from_numpy(batch.keys.index)].to(device), self.settings)

    @torch.no_grad()
    def answers(self, images: Tensor) -> Tensor:
        """To normalised images of the student: the same pixels, at the teacher's own size and normalisation."""
        own_mean, own_std, mean, std = (
            torch.tensor(v, device=images.device)[:, None, None]
            for v in (self.own.mean, self.own.std, self.student.mean, self.student.std)
        )
        seen = (images * std + mean - own_mean) / own_std
        if tuple(seen.shape[-2:]) != self.own.size:
            seen = F.interpolate(seen, size=self.own.size, mode="bicubic", antialias=True)
        return teacher_answers(self.model(seen)[:, self.order], self.settings)


def load_teacher(recipe: Recipe) -> tuple[Recipe, ViT | None]:
    """The model, and the recipe with the hash of its weights: a run is not gone on with under another teacher."""
    d = recipe.distill
    if not d.teacher:
        return recipe, None
    model = load_model(d.teacher).requires_grad_(False)
    digest = hash_weights(model)
    if d.teacher_sha256 not in ("", digest):
        raise UsageError(f"the teacher {d.teacher} has other weights than those that this run began with")
    return dataclasses.replace(recipe, distill=dataclasses.replace(d, teacher_sha256=digest)), model


def make_teacher(
    d: Distill, model: ViT, class_names: Sequence[str], student: Preprocess, train: Split, device: torch.device
) -> Teacher:
    """Ready to be asked; refused where it does not know the classes."""
    names, own = require_metadata(model, d.teacher)
    number = {name: i for i, name in enumerate(names)}
    if unknown := [name for name in class_names if name not in number]:
        raise ConfigError(
            f"the teacher {d.teacher} does not know {len(unknown)} of the {len(class_names)} classes, such as "
            f"{unknown[0]!r}: fine-tune it on this data first"
        )
    if own.channels != student.channels:
        raise ConfigError(f"the teacher {d.teacher} takes {own.channels} channels, the student {student.channels}")
    order = torch.tensor([number[name] for name in class_names])
    model = model.to(device).eval()
    table = _logits(model, train, own)[:, order] if d.sees == "original" else None
    return Teacher(model, d, student, own, order.to(device), table)


@torch.no_grad()
def _logits(model: ViT, train: Split, own: Preprocess) -> Tensor:
    """Of all training images, by way of the feature cache: a second run does not ask again."""
    features = cached_features(model, train, own)
    if len(features) != len(train):
        raise ConfigError(f"the teacher cannot read {len(train) - len(features)} of the training images")
    values = torch.from_numpy(features.values).to(next(model.parameters()).device)
    return classify_features(model, values).float().cpu()
