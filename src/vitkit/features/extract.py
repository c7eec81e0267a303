"""Images → features: what the classifier of a model looks at, one vector per image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitkit.data.dataset import Split
from vitkit.data.pipeline import CORRUPT_LIMIT, Progress
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError, WeightsError
from vitkit.evaluation import predict_logits
from vitkit.evaluation.predict import Reading
from vitkit.model import ViT
from vitkit.runtime.data_parallel import InParts


@dataclass(frozen=True)
class Features:
    """Row i belongs to image `kept[i]` of the split; images that cannot be decoded have none."""

    values: np.ndarray  # (N, D) float32
    kept: np.ndarray  # (N,) int64
    skipped: Sequence[str] = ()  # name and reason

    def __len__(self) -> int:
        return len(self.values)


class Pooled(nn.Module):
    """A model up to what its classifiers see: the pooled vector, and beside it the distillation token if there is one.

    The hidden layer of a pre-training head is left out, as it is dropped for other classes.
    """

    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        tokens = self.model.forward_features(images)
        pooled = self.model.fc_norm(self.model.attn_pool(tokens))
        return pooled if self.model.head_dist is None else torch.cat([pooled, tokens[:, 1]], dim=1)


def classify(model: ViT, features: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    """The model's logits, from its features."""
    if model.head_dist is None:
        return model.head(model.pre_logits(features))
    pooled, distilled = torch.split(features, [model.config.pooled_width, model.config.width], dim=1)
    return (model.head(model.pre_logits(pooled)) + model.head_dist(distilled)) / 2


@torch.no_grad()
def set_classifier(model: ViT, weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"]) -> None:
    """Make weight · features + bias the model's logits; two classifiers share it, for their mean is the answer."""
    head, head_dist = cast(nn.Linear, model.head), cast(nn.Linear | None, model.head_dist)
    width = model.config.pooled_width
    share = 1 if head_dist is None else 2
    head.weight.copy_(share * weight[:, :width])
    head.bias.copy_(bias)
    if head_dist is not None:
        head_dist.weight.copy_(share * weight[:, width:])
        head_dist.bias.copy_(bias)


def preprocess_of(model: ViT, source: object) -> Preprocess:
    """How images have to be shown to it; features of images that are shown otherwise would mean little."""
    if model.info.preprocess is None:
        raise WeightsError(f"{source} brings no preprocessing: `vitkit convert` makes a model folder that does")
    return model.info.preprocess


def extract(
    model: ViT,
    split: Split,
    preprocess: Preprocess,
    *,
    batch: int = 64,
    progress: Progress | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Features:
    """Streams: a few batches of images are in memory at a time, and the features of all."""
    if not len(split):
        raise DataError("no images to extract features of: the split is empty")
    reading = Reading(split, preprocess, batch, progress, corrupt_limit)
    values, _ = predict_logits(InParts(Pooled(model)), reading.batches(model.patch_embed.proj.weight.device))
    skipped = tuple(f"{name}: {reason}" for name, reason in reading.corrupt.found.items())
    return Features(values, np.array(reading.kept, dtype=np.int64), skipped)
