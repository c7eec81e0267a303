"""`Predictor`: a model folder that answers. Class names and preprocessing come from the folder, from nowhere else."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vitkit.errors import WeightsError
from vitkit.model import ViT
from vitkit.weights.folder import load_model

Picture = str | Path | bytes | np.ndarray | Image.Image


@dataclass(frozen=True)
class Prediction:
    label: str
    score: float


class Predictor:
    """`Predictor("runs/pets")("cat.jpg")` → the labels, best first. A list of images gives a list of such answers."""

    def __init__(self, model: str | Path | ViT) -> None:
        self.model = (model if isinstance(model, ViT) else load_model(model)).eval()
        info = self.model.info
        if info is None or info.preprocess is None or not info.class_names:
            raise WeightsError(
                f"{model} brings no class names or no preprocessing, so its answers would have no meaning"
            )
        self.class_names, self.preprocess = tuple(info.class_names), info.preprocess

    def __call__(self, images: Picture | Sequence[Picture], top: int = 5) -> list[Prediction] | list[list[Prediction]]:
        if isinstance(images, Sequence) and not isinstance(images, str | bytes):
            return self.many(images, top)
        return self.many([images], top)[0]

    @torch.inference_mode()
    def many(self, images: Sequence[Picture], top: int = 5) -> list[list[Prediction]]:
        pixels = self.preprocess.batch([Path(i) if isinstance(i, str) else i for i in images])
        device = next(self.model.parameters()).device
        scores, labels = self.model(self.preprocess.normalize(pixels.to(device))).softmax(dim=-1).sort(descending=True)
        return [
            [Prediction(self.class_names[k], s) for s, k in zip(row_s[:top], row_k[:top], strict=True)]
            for row_s, row_k in zip(scores.tolist(), labels.tolist(), strict=True)
        ]
