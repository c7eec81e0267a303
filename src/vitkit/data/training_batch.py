"""`TrainingBatch`: a batch as models and objectives receive it, normalised and mixed."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from vitkit.data.loader import Batch
from vitkit.data.mixup import mixup_cutmix
from vitkit.data.preprocess import Preprocess
from vitkit.data.rng import SampleKeys
from vitkit.data.transforms import Augment


@dataclass(frozen=True)
class TrainingBatch:
    """Images, labels and soft targets of one step. `batch[2:4]` is a batch of these rows."""

    images: Tensor  # (B, C, H, W) float32, normalised, after mixup and CutMix
    labels: Tensor  # (B,) int64, before mixup and CutMix
    targets: Tensor  # (B, K) float32: one-hot rows, smoothed, after mixup and CutMix
    keys: SampleKeys  # index of each image in its split, and the keys of its random draws
    extra: Tensor | None = None  # (B, M): what `extra_targets` of an objective returned, mixed as the targets are

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "TrainingBatch":
        extra = None if self.extra is None else self.extra.to(device)
        images, labels, targets = (each.to(device) for each in (self.images, self.labels, self.targets))
        return TrainingBatch(images, labels, targets, self.keys, extra)

    def __getitem__(self, rows: slice) -> "TrainingBatch":
        extra = None if self.extra is None else self.extra[rows]
        return TrainingBatch(self.images[rows], self.labels[rows], self.targets[rows], self.keys[rows], extra)


def soft_targets(labels: Int[Tensor, " b"], classes: int, smoothing: float) -> Float[Tensor, "b k"]:
    """Return one-hot rows with label smoothing (Szegedy et al. 2016)."""
    return F.one_hot(labels, classes).float() * (1 - smoothing) + smoothing / classes


def prepare_batch(
    batch: Batch,
    preprocess: Preprocess,
    classes: int,
    settings: Augment,
    label_smoothing: float = 0.0,
    device: torch.device | None = None,
    extra: Tensor | None = None,
) -> TrainingBatch:
    """Return the batch on the device: normalised, with soft targets, and mixed as the settings ask for."""
    images = preprocess.normalize(batch.images.to(device, non_blocking=True))
    labels = batch.labels.to(device)
    targets = soft_targets(labels, classes, label_smoothing)
    rows = targets if extra is None else torch.cat([targets, extra], dim=1)
    images, rows = mixup_cutmix(images, rows, batch.keys, settings)
    return TrainingBatch(images, labels, rows[:, :classes], batch.keys, None if extra is None else rows[:, classes:])
