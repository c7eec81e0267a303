"""The table of methods: each turns a batch that is ready for the model into a map per image, and the logits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitkit.errors import ConfigError, InputError, UnknownNameError
from vitkit.explanation import relevance
from vitkit.explanation.attention import Query, mean_attention, patch_grid, query_weights, to_grid
from vitkit.explanation.capture import capture_attention
from vitkit.explanation.occlusion import occlusion
from vitkit.model import ViT
from vitkit.model.validation import resolve_indices


@dataclass(frozen=True)
class Asked:
    """What a method may be asked for; each takes some of it. `target` holds a class per image."""

    layer: int | None = None
    head: int | None = None
    query: Query | None = None
    target: Tensor | None = None
    window: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Method:
    about: str
    unit: str  # of the map's values
    takes: frozenset[str]
    compute: Callable[[ViT, Tensor, Asked], tuple[Tensor, Tensor]]

    @property
    def by_class(self) -> bool:
        return "target" in self.takes


def _attention(model: ViT, images: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    """The last layer by default; with attention pooling, its own query."""
    c = model.config
    by_pool = c.pooling == "attention" and asked.layer is None and asked.query is None
    layer = c.depth if by_pool else c.depth - 1 if asked.layer is None else asked.layer % c.depth
    whose = torch.ones(1) if by_pool else query_weights(model, patch_grid(model, images), asked.query)
    heads = resolve_indices("head", None if asked.head is None else [asked.head], c.heads)
    found, logits = capture_attention(
        model, images, lambda q, k: mean_attention(q[:, heads], k[:, heads], whose), [layer]
    )
    return to_grid(found[layer].mean(dim=1), model, images), logits


def _rollout(model: ViT, images: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    return relevance.rollout(model, images, asked.layer, asked.query)


def _gradient(model: ViT, images: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    return relevance.gradient(model, images, asked.target)


def _attribution(model: ViT, images: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    return relevance.attribution(model, images, asked.target)


def _occlusion(model: ViT, images: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    return occlusion(model, images, asked.target, asked.window)


def _random(model: ViT, images: Tensor, asked: Asked) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(asked.seed)
    with torch.no_grad():
        return torch.rand(len(images), *patch_grid(model, images), generator=generator), model(images)


METHODS: dict[str, Method] = {
    "attention": Method(
        "where the pooled token looks in one layer", "attention", frozenset({"layer", "head", "query"}), _attention
    ),
    "rollout": Method(
        "attention multiplied through the layers", "attention", frozenset({"layer", "query"}), _rollout
    ),
    "gradient": Method(
        "rollout of attention weighted by the class's gradient", "relevance", frozenset({"target"}), _gradient
    ),
    "attribution": Method(
        "relevance of a class added up through the layers", "relevance", frozenset({"target"}), _attribution
    ),
    "occlusion": Method(
        "how much the class loses where the image is covered", "fall of log-probability",
        frozenset({"target", "window"}), _occlusion,
    ),
    "random": Method("noise: the floor that every method has to beat", "noise", frozenset({"seed"}), _random),
}  # fmt: skip
DEFAULT = "gradient"  # of the methods that take one pass, the best in insertion − deletion: benchmarks/faithfulness.py


def check(name: str, model: ViT, given: Mapping[str, object]) -> Method:
    """The method, if there is one, it takes the options that are given, and this model can be asked for them."""
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    method, c = METHODS[name], model.config
    for option in (o for o, value in given.items() if value is not None):
        if option not in method.takes:
            able = ", ".join(n for n, m in METHODS.items() if option in m.takes)
            what = "class" if option == "target" else option
            raise ConfigError(f"method {name!r} has no {what} to choose: leave it out, or use {able}")
    if method.by_class and not c.num_classes:
        raise InputError(f"the model has no classifier, and {name!r} explains a class: use 'attention' or 'rollout'")
    for kind, count in (("layer", c.depth), ("head", c.heads)):
        if isinstance(number := given.get(kind), int):
            resolve_indices(kind, [number], count)
    return method
