"""`explain(model, images, method)`: images in, a map per image out, in the coordinates of the photographs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitkit.errors import InputError, UnknownNameError
from vitkit.evaluation.predict import eval_mode
from vitkit.explanation.attention import Query
from vitkit.explanation.methods import DEFAULT, Asked, check
from vitkit.inference.image_inputs import ImageInputs, SourceImages, prepare_images
from vitkit.model import ViT
from vitkit.model.validation import check_images
from vitkit.weights.load import load_model

Target = int | str | Sequence[int | str]
ATTENTION_AT_ONCE = 2**28  # numbers: 1 GiB of attention weights; decides how many images go through together


@dataclass(frozen=True)
class Explanation:
    """Arrays, one row per image. Drawing is `vitkit.explanation.plots`'s."""

    method: str
    unit: str  # of the maps' values
    maps: np.ndarray  # (B, gh, gw) float32, one value per patch
    logits: np.ndarray  # (B, K) float32
    targets: np.ndarray  # (B,) the class that is explained, or that was predicted where a method knows no classes
    labels: tuple[str, ...]  # the names of the targets
    scores: np.ndarray  # (B,) the targets' probabilities
    images: SourceImages  # the images as given, and the region of each that the model received

    def __len__(self) -> int:
        return len(self.maps)

    @property
    def regions(self) -> np.ndarray:
        """(B, 4): left, top, right, bottom of what the model saw, in pixels of the original photographs."""
        return self.images.regions

    def arrays(self) -> dict[str, np.ndarray]:
        """The raw numbers, as they go into an .npz."""
        return {
            "maps": self.maps,
            "logits": self.logits,
            "targets": self.targets,
            "scores": self.scores,
            "labels": np.array(self.labels),
            "names": np.array(self.images.names),
            "regions": self.regions,
            "sizes": self.images.sizes,
        }


@torch.inference_mode(False)  # whatever holds outside: methods with gradients need tensors that can have them
def explain(
    model: ViT | str | Path,
    images: ImageInputs,
    method: str = DEFAULT,
    *,
    layer: int | None = None,
    head: int | None = None,
    query: Query | None = None,
    target: Target | None = None,
    window: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Explanation:
    """Return one map per image: how much each patch contributed to the prediction, or was attended to.

    `images` are whatever `Predictor` takes: they go through the model's preprocessing, at `image_size` if one is given.
    A tensor of floats is a batch that is normalised already. `METHODS` lists the options of each method. `target` is
    a class name or index, for all images or one for each; the default is the predicted class.
    """
    model = model if isinstance(model, ViT) else load_model(model)
    chosen = check(method, model, dict(layer=layer, head=head, query=query, target=target, window=window))
    batch, source = prepare_images(model, images, image_size)
    check_images(batch, model.config, model.patch_embed.proj.weight.dtype)
    targets = None if target is None else class_indices(model, target, len(batch)).to(batch.device)
    maps, logits = [], []
    step = at_once(model, batch)
    with eval_mode(model):
        for start in range(0, len(batch), step):
            part = slice(start, start + step)
            some = Asked(layer, head, query, None if targets is None else targets[part], window, seed + start)
            values, answers = chosen.compute(model, batch[part], some)
            maps.append(values.float().cpu())
            logits.append(answers.float().cpu())
            if progress is not None:
                progress(min(start + step, len(batch)), len(batch))
    answers = torch.cat(logits)
    shown = answers.argmax(dim=1) if targets is None else targets.cpu()
    names = class_names(model)
    return Explanation(
        method=method,
        unit=chosen.unit,
        maps=torch.cat(maps).numpy(),
        logits=answers.numpy(),
        targets=shown.numpy(),
        labels=tuple(names[i] for i in shown.tolist()) if model.config.num_classes else ("",) * len(batch),
        scores=answers.softmax(dim=1).gather(1, shown[:, None])[:, 0].numpy(),
        images=source,
    )


def class_indices(model: ViT, target: Target, count: int) -> Tensor:
    """One class per image, by number. A word is looked up in what the model calls its classes; it may be a number."""
    many = [target] * count if isinstance(target, int | str) else list(target)
    if len(many) != count:
        raise InputError(f"{len(many)} classes for {count} images: give one for all, or one for each")
    return torch.tensor([_class_index(model, one) for one in many], dtype=torch.long)


def class_names(model: ViT) -> Sequence[str]:
    """Numbers where the model brings no names."""
    return model.info.class_names or [str(i) for i in range(model.config.num_classes)]


def _class_index(model: ViT, wanted: Any) -> int:
    names = list(class_names(model))
    if wanted in names:
        return names.index(wanted)
    if isinstance(wanted, str) and not wanted.isdecimal():
        raise UnknownNameError("class", wanted, names, f"the model knows {len(names):,}")
    if not 0 <= int(wanted) < len(names):
        raise InputError(f"class {wanted} is out of range: there are {len(names)}, 0…{len(names) - 1}")
    return int(wanted)


def at_once(model: ViT, batch: Tensor) -> int:
    """Images that go through together: the weights of all layers have to fit for the methods with gradients."""
    c = model.config
    tokens = c.prefix + batch.shape[2] * batch.shape[3] // (c.patch_size[0] * c.patch_size[1])
    return min(max(ATTENTION_AT_ONCE // (c.depth * c.heads * tokens**2), 1), 64)
