"""The table of explanation methods. Each turns a normalised batch into one map per image, and the logits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitkit.errors import ConfigError, InputError, UnknownNameError, UsageError
from vitkit.explanation import relevance
from vitkit.explanation.attention import Query, mean_attention, patch_grid, query_weights, to_grid
from vitkit.explanation.capture import capture_attention
from vitkit.explanation.occlusion import occlusion
from vitkit.model import ViT
from vitkit.model.validation import resolve_indices


@dataclass(frozen=True)
class MethodOptions:
    """Options of all methods; each method uses some of them. `target` holds one class per image."""

    layer: int | None = None
    head: int | None = None
    query: Query | None = None
    target: Tensor | None = None
    window: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Method:
    description: str
    unit: str  # of the map's values
    options: frozenset[str]  # the fields of `MethodOptions` that it uses
    compute: Callable[[ViT, Tensor, MethodOptions], tuple[Tensor, Tensor]]  # → maps (B, gh, gw), logits

    @property
    def class_specific(self) -> bool:
        return "target" in self.options


def _attention(model: ViT, images: Tensor, options: MethodOptions) -> tuple[Tensor, Tensor]:
    """Return the attention of the last layer by default, or of the pooling query for models with attention pooling."""
    c = model.config
    pooling_query = c.pooling.startswith("attention") and options.layer is None and options.query is None
    layer = c.depth if pooling_query else c.depth - 1 if options.layer is None else options.layer % c.depth
    weights = torch.ones(1) if pooling_query else query_weights(model, patch_grid(model, images), options.query)
    heads = resolve_indices(
        "head",
        None if options.head is None else [options.head],
        (c.pool_heads or c.heads) if pooling_query else c.heads,
    )
    found, logits = capture_attention(
        model, images, lambda q, k: mean_attention(q[:, heads], k[:, heads], weights), [layer]
    )
    return to_grid(found[layer].mean(dim=1), model, images), logits


def _random(model: ViT, images: Tensor, options: MethodOptions) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(options.seed)
    with torch.no_grad():
        return torch.rand(len(images), *patch_grid(model, images), generator=generator), model(images)


METHODS: dict[str, Method] = {
    "attention": Method(
        "attention of the pooled token in one layer", "attention", frozenset({"layer", "head", "query"}), _attention
    ),
    "rollout": Method(
        "attention multiplied through the layers", "attention", frozenset({"layer", "query"}),
        lambda model, images, options: relevance.rollout(model, images, options.layer, options.query),
    ),
    "gradient": Method(
        "rollout of attention weighted by the gradient of the class", "relevance", frozenset({"target"}),
        lambda model, images, options: relevance.gradient(model, images, options.target),
    ),
    "attribution": Method(
        "relevance of the class accumulated through the layers", "relevance", frozenset({"target"}),
        lambda model, images, options: relevance.attribution(model, images, options.target),
    ),
    "occlusion": Method(
        "drop of the class's log-probability when patches are masked", "drop of log-probability",
        frozenset({"target", "window"}),
        lambda model, images, options: occlusion(model, images, options.target, options.window),
    ),
    "random": Method("random values, the baseline of every comparison", "random value", frozenset({"seed"}), _random),
}  # fmt: skip
DEFAULT_METHOD = "gradient"  # best insertion − deletion of the methods without masking: benchmarks/faithfulness.py


def check_options(name: str, model: ViT, given: Mapping[str, object]) -> Method:
    """Return the method; refuse unknown methods, and options that the method or the model does not have."""
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    method, c = METHODS[name], model.config
    for option in (o for o, value in given.items() if value is not None):
        if option not in method.options:
            able = ", ".join(n for n, m in METHODS.items() if option in m.options)
            what = "class" if option == "target" else option
            raise ConfigError(f"method {name!r} has no {what} option: remove it, or use {able}")
    if method.class_specific and not c.num_classes:
        raise InputError(f"the model has no classifier, and {name!r} explains a class: use 'attention' or 'rollout'")
    for kind, count in (("layer", c.depth), ("head", c.heads)):
        if isinstance(number := given.get(kind), int):
            resolve_indices(kind, [number], count)
    return method


def parse_query(text: str | None, option: str = "query") -> Query | None:
    """Read `class`, `mean`, or a patch as ROW,COL; None stays None."""
    if text is None or text == "class" or text == "mean":
        return text  # type: ignore[return-value]  # mypy does not narrow str to its literals
    row, comma, column = text.partition(",")
    if not (comma and row.strip().isdigit() and column.strip().isdigit()):
        raise UsageError(f"{option} {text!r}: expected class, mean, or a patch as ROW,COL such as 3,7")
    return int(row), int(column)
