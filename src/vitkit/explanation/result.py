"""`explain(model, images, method)` returns one map per image, and where it lies in the original image."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitkit.errors import InputError, UnknownNameError
from vitkit.evaluation.predict import eval_mode
from vitkit.explanation.attention import Query
from vitkit.explanation.methods import DEFAULT_METHOD, MethodOptions, check_options
from vitkit.inference.image_inputs import ImageInputs, SourceImages, prepare_images
from vitkit.model import ViT
from vitkit.model.validation import check_images
from vitkit.weights.load import load_model

Target = int | str | Sequence[int | str]
MAX_ATTENTION_WEIGHTS = 2**28  # 1 GiB in float32: limits the default batch size


@dataclass(frozen=True)
class Explanation:
    """Arrays with one row per image. `vitkit.explanation.plots` draws them."""

    method: str
    unit: str  # of the maps' values
    maps: np.ndarray  # (B, gh, gw) float32, one value per patch
    logits: np.ndarray  # (B, K) float32
    targets: np.ndarray  # (B,) the explained class; for methods without classes the predicted class
    labels: tuple[str, ...]  # the names of the targets
    scores: np.ndarray  # (B,) the targets' probabilities
    images: SourceImages  # the images as given

    def __len__(self) -> int:
        return len(self.maps)

    @property
    def regions(self) -> np.ndarray:
        """(B, 4): left, top, right, bottom of the crop that the model received, in pixels of the original images."""
        return self.images.regions

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that `vitkit explain` writes to its .npz file."""
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


@torch.inference_mode(False)  # methods with gradients also work when the caller is in inference mode
def explain(
    model: ViT | str | Path,
    images: ImageInputs,
    method: str = DEFAULT_METHOD,
    *,
    layer: int | None = None,
    head: int | None = None,
    query: Query | None = None,
    target: Target | None = None,
    window: int | None = None,
    image_size: int | tuple[int, int] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Explanation:
    """Return one map per image: how much each patch contributed to the prediction, or was attended to.

    `images` are whatever `Predictor` takes: they go through the model's preprocessing, at `image_size` if one is given.
    A tensor of floats is a batch that is normalised already. `METHODS` lists the options of each method. `target` is
    a class name or index, for all images or one for each; the default is the predicted class. The default
    `batch_size` keeps the attention weights of all layers below 1 GiB.
    """
    model = model if isinstance(model, ViT) else load_model(model)
    chosen = check_options(method, model, dict(layer=layer, head=head, query=query, target=target, window=window))
    batch, source = prepare_images(model, images, image_size)
    check_images(batch, model.config, model.patch_embed.proj.weight.dtype)
    targets = None if target is None else class_indices(model, target, len(batch)).to(batch.device)
    maps, logits = [], []
    step = batch_size or _default_batch_size(model, batch)
    with eval_mode(model):
        for start in range(0, len(batch), step):
            part = slice(start, start + step)
            classes = None if targets is None else targets[part]
            options = MethodOptions(layer, head, query, classes, window, seed + start)
            some_maps, some_logits = chosen.compute(model, batch[part], options)
            maps.append(some_maps.float().cpu())
            logits.append(some_logits.float().cpu())
            if progress is not None:
                progress(min(start + step, len(batch)), len(batch))
    outputs = torch.cat(logits)
    shown = outputs.argmax(dim=1) if targets is None else targets.cpu()
    names = class_names(model)
    return Explanation(
        method=method,
        unit=chosen.unit,
        maps=torch.cat(maps).numpy(),
        logits=outputs.numpy(),
        targets=shown.numpy(),
        labels=tuple(names[i] for i in shown.tolist()) if model.config.num_classes else ("",) * len(batch),
        scores=outputs.softmax(dim=1).gather(1, shown[:, None])[:, 0].numpy(),
        images=source,
    )


def class_indices(model: ViT, target: Target, count: int) -> Tensor:
    """Return one class index per image. A class is given by its name or its index, which may be a string."""
    many = [target] * count if isinstance(target, int | str) else list(target)
    if len(many) != count:
        raise InputError(f"{len(many)} classes for {count} images: give one for all, or one for each")
    names = class_names(model)
    return torch.tensor([class_index(names, one) for one in many], dtype=torch.long)


def class_names(model: ViT) -> Sequence[str]:
    """Return the model's class names, or the indices as strings if it has none."""
    return model.info.class_names or [str(i) for i in range(model.config.num_classes)]


def class_index(names: Sequence[str], wanted: int | str) -> int:
    """Return the index of a class that is given by its name or its index. Raise if several classes have the name."""
    found = [i for i, name in enumerate(names) if name == wanted]
    if len(found) > 1:
        raise InputError(f"classes {' and '.join(map(str, found))} are named {wanted!r}: give the index of one of them")
    if found:
        return found[0]
    if isinstance(wanted, str) and not wanted.isdecimal():
        raise UnknownNameError("class", wanted, names, f"the model has {len(names):,} classes")
    if not 0 <= int(wanted) < len(names):
        raise InputError(f"class {wanted} is out of range: use 0…{len(names) - 1}")
    return int(wanted)


def _default_batch_size(model: ViT, batch: Tensor) -> int:
    """Return how many images fit the limit: gradient methods keep the attention weights of all layers."""
    c = model.config
    tokens = c.prefix + batch.shape[2] * batch.shape[3] // (c.patch_size[0] * c.patch_size[1])
    return min(max(MAX_ATTENTION_WEIGHTS // (c.depth * c.heads * tokens**2), 1), 64)
