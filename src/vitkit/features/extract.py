"""Extract features: one vector per image, the input of the model's classifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitkit.data.dataset import Split
from vitkit.data.decode_pipeline import CORRUPT_LIMIT, Progress
from vitkit.data.loader import SplitReader
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError, WeightsError
from vitkit.evaluation import predict_logits
from vitkit.model import ViT, ViTConfig, create_model
from vitkit.runtime.threaded_inference import ThreadedInference
from vitkit.weights.load import load_model

HEAD_PREFIXES = ("head.", "head_dist.", "pre_logits.")  # parameters that features do not depend on


@dataclass(frozen=True)
class Features:
    """Feature vectors of a split. Row i belongs to image `indices[i]`; undecodable images have no row."""

    values: np.ndarray  # (N, D) float32
    indices: np.ndarray  # (N,) int64
    skipped: Sequence[str] = ()  # "name: reason" of each undecodable image

    def __len__(self) -> int:
        return len(self.values)


class FeatureExtractor(nn.Module):
    """A ViT without its classifiers: returns the pooled vector, followed by the distillation token if there is one.

    The hidden layer of a pre-training head is left out, because a new classifier replaces it.
    """

    def __init__(self, model: ViT) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d"]:
        tokens = self.model.forward_features(images)
        pooled = self.model.fc_norm(self.model.attn_pool(tokens))
        return pooled if self.model.head_dist is None else torch.cat([pooled, tokens[:, 1]], dim=1)


def classify_features(model: ViT, features: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
    """Return the model's logits for features that `FeatureExtractor` computed."""
    if model.head_dist is None:
        return model.head(model.pre_logits(features))
    pooled, distilled = torch.split(features, [model.config.pooled_width, model.config.width], dim=1)
    return (model.head(model.pre_logits(pooled)) + model.head_dist(distilled)) / 2


@torch.no_grad()
def set_head(model: ViT, weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"]) -> None:
    """Set the classifier so that the logits are weight · features + bias.

    A distilled model averages two classifiers, so each gets twice its part of the weight.
    """
    head, head_dist = cast(nn.Linear, model.head), cast(nn.Linear | None, model.head_dist)
    width = model.config.pooled_width
    scale = 1 if head_dist is None else 2
    head.weight.copy_(scale * weight[:, :width])
    head.bias.copy_(bias)
    if head_dist is not None:
        head_dist.weight.copy_(scale * weight[:, width:])
        head_dist.bias.copy_(bias)


def widen_pooling(config: ViTConfig) -> dict[str, Any]:
    """Return {"pooling": "cls_mean"} for weights that were trained with the class token alone, else {}.

    The class token lacks information that the pre-training classes did not need; the mean of the patch tokens has it.
    """
    cls_only = config.pooling == "cls" and config.final_norm == "tokens" and not config.distillation
    return {"pooling": "cls_mean"} if cls_only else {}


def probe_backbone(model: ViT) -> ViT:
    """Return a copy of the model that has no classifier and pools as a linear probe does (`widen_pooling`)."""
    config = model.config.replace(num_classes=0, head_hidden=0, **widen_pooling(model.config))
    backbone = create_model(config, model_class=type(model))
    backbone.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith(HEAD_PREFIXES)})
    return backbone.to(model.patch_embed.proj.weight.device)


def require_preprocess(model: ViT, source: object = "the model") -> Preprocess:
    """Return the preprocessing that the model was trained with, or raise if it is unknown."""
    if model.info.preprocess is None:
        raise WeightsError(
            f"{source} has no preprocessing: write a model folder that has it with `vitkit convert … --preprocess FILE`"
        )
    return model.info.preprocess


def extract_features(
    model: ViT | str | Path,
    split: Split,
    preprocess: Preprocess | None = None,
    *,
    batch_size: int = 64,
    progress: Progress | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Features:
    """Return the features of every image of a split, by default with the model's own preprocessing.

    Images are streamed: a few batches are in memory at a time. A share of undecodable images above `corrupt_limit` is
    an error.
    """
    if not len(split):
        raise DataError("no images to extract features from: the split is empty")
    vit = model if isinstance(model, ViT) else load_model(model)
    preprocess = preprocess or require_preprocess(vit, "the model" if vit is model else model)
    reader = SplitReader(split, preprocess, batch_size, progress, corrupt_limit)
    runner = ThreadedInference(FeatureExtractor(vit))
    values, _ = predict_logits(runner, reader.batches(vit.patch_embed.proj.weight.device))
    return Features(values, np.array(reader.indices, dtype=np.int64), reader.skipped)
