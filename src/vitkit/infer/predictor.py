"""`Predictor`: a model folder that answers. Class names and preprocessing come from the folder, from nowhere else."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitkit.data.decode import SUFFIXES
from vitkit.errors import CorruptImageError, DataError
from vitkit.model import ViT
from vitkit.weights.folder import load_model, names_and_preprocess

Picture = str | Path | bytes | np.ndarray | Image.Image


@dataclass(frozen=True)
class Prediction:
    label: str
    score: float


class Predictor:
    """`Predictor("runs/pets")("cat.jpg")` → the labels, best first. A list of images gives a list of such answers."""

    def __init__(self, model: str | Path | ViT) -> None:
        self.model = (model if isinstance(model, ViT) else load_model(model)).eval()
        source = model if isinstance(model, str | Path) else "the model"
        self.class_names, self.preprocess = names_and_preprocess(self.model, source)

    def __call__(self, images: Picture | Sequence[Picture], top: int = 5) -> list[Prediction] | list[list[Prediction]]:
        if isinstance(images, Sequence) and not isinstance(images, str | bytes):
            return self.many(images, top)
        return self.many([images], top)[0]

    def many(self, images: Sequence[Picture], top: int = 5, batch: int = 64) -> list[list[Prediction]]:
        pictures = [Path(i) if isinstance(i, str) else i for i in images]
        parts = [pictures[i : i + batch] for i in range(0, len(pictures), batch)]
        return [answer for part in parts for answer in self._answer(self.preprocess.batch(part), top)]

    def files(self, paths: Sequence[Path], top: int = 5) -> list[tuple[Path, list[Prediction] | CorruptImageError]]:
        """An answer per file, or what is wrong with it: one bad file does not stop the others."""
        pixels: dict[Path, Tensor] = {}
        bad: dict[Path, CorruptImageError] = {}
        for path in paths:
            try:
                pixels[path] = self.preprocess(path)
            except CorruptImageError as error:
                bad[path] = error
        answers = self._answer(torch.stack(list(pixels.values())), top) if pixels else []
        found = dict(zip(pixels, answers, strict=True))
        return [(path, bad.get(path) or found[path]) for path in paths]

    @torch.inference_mode()
    def _answer(self, pixels: Tensor, top: int) -> list[list[Prediction]]:
        device = next(self.model.parameters()).device
        scores, labels = self.model(self.preprocess.normalize(pixels.to(device))).softmax(dim=-1).sort(descending=True)
        return [
            [Prediction(self.class_names[k], s) for s, k in zip(row_s[:top], row_k[:top], strict=True)]
            for row_s, row_k in zip(scores.tolist(), labels.tolist(), strict=True)
        ]


def find_images(words: Sequence[str]) -> list[Path]:
    """Files as named, the images of folders, the matches of patterns; in this order, each folder sorted."""
    found: list[Path] = []
    for word in words:
        path = Path(word)
        if path.is_dir():
            found += sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES)
        elif path.exists():
            found.append(path)
        else:
            matches = sorted(glob.glob(word, recursive=True))
            if not matches:
                raise DataError(f"{word}: no such file or folder, and no file matches it as a pattern")
            found += [Path(m) for m in matches]
    if not found:
        raise DataError(f"no images in {', '.join(words)}: expected files that end in {', '.join(sorted(SUFFIXES))}")
    return found
