"""State dicts: detect the layout of a checkpoint, convert it to vitkit's names and back, and load it into a model.

The tables of `layouts.py` are applied in both directions. Rewrites change tensors without changing the function that
the model computes: they bring a model into a form that a layout can store.
"""

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vitkit.errors import WeightsError
from vitkit.model import ViT, ViTConfig, create_model
from vitkit.model.pos_embed import sincos_table
from vitkit.weights.layouts import LAYOUTS, KeyRule, Layout

State = dict[str, Tensor]

# Prefixes that training code adds when it wraps a model
_WRAPPERS = re.compile(r"^((module|model|backbone|_orig_mod|teacher|student)\.)+")


@dataclass(frozen=True)
class Transform:
    """`read` makes one of our tensors from theirs; `write(tensor, config, count)` makes `count` of theirs from ours."""

    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor, ViTConfig, int], Sequence[Tensor]]


def _not_written(tensor: Tensor, config: ViTConfig, count: int) -> Sequence[Tensor]:
    raise WeightsError("this layout can be read but not written")


TRANSFORMS = {
    "same": Transform(lambda t: t[0], lambda t, c, n: [t]),
    "concat": Transform(lambda t: torch.cat(list(t)), lambda t, c, n: t.chunk(n)),
    "concat around zero": Transform(
        lambda t: torch.cat([t[0], torch.zeros_like(t[0]), t[1]]), lambda t, c, n: t.chunk(3)[::2]
    ),
    "masked": Transform(lambda t: t[0] * t[1].nan_to_num(0.0).to(t[0].dtype), _not_written),
    # the first third of stacked queries, keys and values, and the rest
    "query": Transform(lambda t: t[0].chunk(3)[0], _not_written),
    "key and value": Transform(lambda t: t[0][t[0].shape[0] // 3 :], _not_written),
    # a convolution, or a linear layer on patches of RGB pixels
    "patches": Transform(lambda t: t[0] if t[0].ndim == 4 else _square_patches(t[0]), _not_written),
    # a vector or a table without our batch axes
    "token": Transform(lambda t: t[0][None, None], lambda t, c, n: [t[0, 0]]),
    "table": Transform(lambda t: t[0][None], lambda t, c, n: [t[0]]),
    # Flax: kernels are (in, out), those of attention (in, heads, head width) and (heads, head width, out)
    "kernel": Transform(lambda t: t[0].mT, lambda t, c, n: [t.mT]),
    "conv": Transform(lambda t: t[0].permute(3, 2, 0, 1), lambda t, c, n: [t.permute(2, 3, 1, 0)]),
    "heads in": Transform(
        lambda t: torch.cat([part.flatten(1).mT for part in t]),
        lambda t, c, n: [part.mT.reshape(-1, c.heads, c.head_width) for part in t.chunk(n)],
    ),
    "heads bias": Transform(
        lambda t: torch.cat([part.flatten() for part in t]),
        lambda t, c, n: [part.reshape(c.heads, c.head_width) for part in t.chunk(n)],
    ),
    "heads out": Transform(lambda t: t[0].flatten(0, 1).mT, lambda t, c, n: [t.mT.reshape(c.heads, c.head_width, -1)]),
}


def _square_patches(weight: Tensor, channels: int = 3) -> Tensor:
    side = math.isqrt(weight.shape[1] // channels)
    return weight.reshape(-1, side, side, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class ImportedState:
    """A checkpoint converted to vitkit's names."""

    tensors: State
    used: int  # how many tensors of the checkpoint were mapped
    ignored: dict[str, str]  # name in the checkpoint → reason
    heads: int | None  # if the layout's shapes show it


def detect_layout(tensors: Mapping[str, Tensor], where: object) -> Layout:
    """Return the layout that knows most of the tensor names; raise if none knows the patch projection."""
    best, most = None, 0
    for layout in LAYOUTS.values():
        names = _canonical_names(layout, tensors)
        rules = _expand(layout, names)
        mapped = {t for rule in rules for t in rule.theirs}
        if not any(rule.ours == "patch_embed.proj.weight" and rule.theirs[0] in names for rule in rules):
            continue
        known = sum(name in mapped or _reason(layout.ignored_keys, name) is not None for name in names)
        if known > most:
            best, most = layout, known
    if best is None:
        shown = ", ".join(sorted(tensors)[:3]) or "no tensors"
        raise WeightsError(f"{where} matches no known Vision Transformer layout: it contains {shown} …")
    return best


def import_state_dict(layout: Layout, tensors: Mapping[str, Tensor], where: object) -> ImportedState:
    """Convert a checkpoint to vitkit's names. Every tensor must be mapped or ignored for a stated reason."""
    names = _canonical_names(layout, tensors)
    ours: State = {}
    used: set[str] = set()
    candidates: dict[str, list[KeyRule]] = {}
    for rule in _expand(layout, names):
        candidates.setdefault(rule.ours, []).append(rule)
    for key, rules in candidates.items():
        complete = next((rule for rule in rules if all(t in names for t in rule.theirs)), None)
        if complete:
            found = [names[t] for t in complete.theirs]
            ours[key] = _read(complete, [tensors[name] for name in found], found, where)
            used |= set(found)
        elif partial := next((rule for rule in rules if any(t in names for t in rule.theirs)), None):
            absent = next(t for t in partial.theirs if t not in names)
            raise WeightsError(f"{where} is incomplete: {absent}, a part of {key}, is missing")
    ignored = {
        key: reason for name, key in names.items() if key not in used and (reason := _reason(layout.ignored_keys, name))
    }
    if extra := sorted(tensors.keys() - used - ignored.keys()):
        raise WeightsError(
            f"{where} contains {len(extra)} tensors that a {layout.name} ViT does not have: {extra[0]} …"
        )
    heads = None
    if layout.heads_axis is not None and layout.heads_axis[0] in names:
        heads = tensors[names[layout.heads_axis[0]]].shape[layout.heads_axis[1]]
    return ImportedState(ours, len(used), ignored, heads)


def export_state_dict(layout: Layout, tensors: Mapping[str, Tensor], config: ViTConfig) -> State:
    """Convert our tensors to the names of a layout that supports the model."""
    body, mlp = layout.body if config.num_classes else "", "gated MLP" if config.mlp == "swiglu" else "plain MLP"
    found: State = {}
    written = set()
    for template in layout.rows:
        for rule in _numbered(template, range(config.depth), body):
            if rule.ours not in tensors or rule.ours in written or rule.when not in ("", mlp):
                continue
            parts = TRANSFORMS[rule.transform].write(tensors[rule.ours], config, len(rule.theirs))
            found |= {t: part.contiguous() for t, part in zip(rule.theirs, parts, strict=True)}
            written.add(rule.ours)
    if left := sorted(tensors.keys() - written):
        raise WeightsError(f"{layout.name} cannot store this model: it has no name for {left[0]}")
    return found


# Fields that every layout stores as shapes, or that do not change what the model computes at its own image size
_ANY_VALUE = {
    "image_size", "patch_size", "in_channels", "patch_embed", "class_position", "width", "depth", "heads", "head_width",
    "mlp_width", "qkv_bias", "num_classes", "init", "dropout", "attention_dropout", "drop_path",
    "position_resample", "position_antialias", "position_offset",
}  # fmt: skip


def unsupported_feature(layout: Layout, config: ViTConfig) -> str | None:
    """Return a sentence about the first feature that the layout cannot store, or None.

    A field that the layout does not list must have its default. Another norm epsilon is allowed: `write_model` reports
    it.
    """
    if layout.supports is None:
        return f"{layout.name} can be read but not written"
    for field in dataclasses.fields(ViTConfig):
        value = getattr(config, field.name)
        allowed = layout.supports.get(field.name, () if field.name in _ANY_VALUE else (field.default,))
        if allowed and field.name != "norm_eps" and not any(_allows(a, value) for a in allowed):
            return f"{layout.name} cannot store a model with {field.name}={value!r}"
    if config.heads * config.head_width != config.width:
        return f"{layout.name} cannot store {config.heads} heads of {config.head_width} in a width of {config.width}"
    return None


def _allows(allowed: Any, value: Any) -> bool:
    if isinstance(allowed, type):
        return isinstance(value, allowed)
    return value in allowed if isinstance(allowed, range) else value == allowed


def _read(rule: KeyRule, tensors: Sequence[Tensor], names: Sequence[str], where: object) -> Tensor:
    try:
        return TRANSFORMS[rule.transform].read(tensors)
    except (RuntimeError, IndexError) as error:
        shapes = ", ".join(f"{n} {tuple(t.shape)}" for n, t in zip(names, tensors, strict=True))
        raise WeightsError(f"{where}: {shapes}: wrong shape for {rule.ours}") from error


def without_wrappers(names: Iterable[str]) -> list[str]:
    """Return the names without the prefixes that training code adds."""
    return [_WRAPPERS.sub("", name) for name in names]


def _canonical_names(layout: Layout, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return a dictionary from the layout's names to the names in the checkpoint."""
    names: dict[str, str] = {}
    for key in tensors:
        name = _WRAPPERS.sub("", key)
        for pattern, replacement in layout.aliases:
            name = re.sub(pattern, replacement, name)
        if name in names:
            raise WeightsError(f"the checkpoint contains both {names[name]} and {key}, two names of the same tensor")
        names[name] = key
    return names


def _expand(layout: Layout, names: Mapping[str, str]) -> list[KeyRule]:
    """Return the rules of a layout for every block number in the checkpoint."""
    return [rule for template in layout.rows for rule in _numbered(template, _block_numbers(template, names), body="")]


def _block_numbers(template: KeyRule, names: Mapping[str, str]) -> list[int]:
    if "{i}" not in template.ours:
        return []
    head, tail = template.theirs[0].replace("{body}", "").split("{i}")
    numbers = (name[len(head) : -len(tail)] for name in names if name.startswith(head) and name.endswith(tail))
    return sorted({int(n) for n in numbers if n.isascii() and n.isdigit() and len(n) < 5})


def _numbered(template: KeyRule, numbers: Sequence[int], body: str) -> list[KeyRule]:
    def fill(i: int | None) -> KeyRule:
        theirs = tuple(t.replace("{body}", body).replace("{i}", str(i)) for t in template.theirs)
        return replace(template, ours=template.ours.replace("{i}", str(i)), theirs=theirs)

    return [fill(i) for i in numbers] if "{i}" in template.ours else [fill(None)]


def _reason(reasons: Sequence[tuple[str, str]], name: str) -> str | None:
    return next((reason for pattern, reason in reasons if re.search(pattern, name)), None)


# Rewrites: the same function in other tensors


def rewrite(state: State, config: ViTConfig, names: Sequence[str]) -> tuple[State, ViTConfig]:
    """Apply rewrites by name. Return the new state and config, or the given ones if a rewrite does not concern them."""
    for name in names:
        state, config = _REWRITES[name](state, config)
    return state, config


def _sincos_to_table(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    if config.position != "sincos":
        return state, config
    table = sincos_table(config.grid, config.width)[None]
    return {**state, "pos_embed": table}, config.replace(position="learned", class_position=False)


def _zero_class_position(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    if config.position != "learned" or config.class_position or not config.class_token:
        return state, config
    table = state["pos_embed"]
    rows = table.new_zeros(1, 1 + config.distillation, config.width)
    return {**state, "pos_embed": torch.cat([rows, table], dim=1)}, config.replace(class_position=True)


def _class_position_into_token(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    """Add the position row of the class token to the class token, and remove the row, in models with registers.

    timm's position table has rows for the class token and the registers, or for neither.
    """
    if config.position != "learned" or not config.class_position or not config.class_token or not config.registers:
        return state, config
    table = state["pos_embed"]
    folded = {"cls_token": state["cls_token"] + table[:, :1], "pos_embed": table[:, 1:]}
    return {**state, **folded}, config.replace(class_position=False)


def _patch_bias_into_positions(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    """Add the bias of the patch projection to the patch rows of the position table, and remove it.

    timm's patch projection has no bias if a norm precedes the blocks.
    """
    if not config.pre_norm or "patch_embed.proj.bias" not in state:
        return state, config
    bias, rest = state["patch_embed.proj.bias"], {k: t for k, t in state.items() if k != "patch_embed.proj.bias"}
    if not bias.any():
        return rest, config
    if config.position != "learned":
        raise WeightsError("timm cannot store a model with pre_norm=True, a patch bias and no position table")
    table = state["pos_embed"].clone()
    table[:, -config.grid[0] * config.grid[1] :] += bias
    return {**rest, "pos_embed": table}, config


def _widen_classifier(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    if config.pooling != "cls" or not config.num_classes or config.head_hidden or config.distillation:
        return state, config
    head = state["head.weight"]
    wider = torch.cat([head, torch.zeros_like(head)], dim=1)
    return {**state, "head.weight": wider}, config.replace(pooling="cls_mean")


def _empty_registers(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    return {"reg_token": torch.zeros(1, 0, config.width), **state}, config


_REWRITES: dict[str, Callable[[State, ViTConfig], tuple[State, ViTConfig]]] = {
    "sincos positions to table": _sincos_to_table,
    "zero class position": _zero_class_position,
    "class position into token": _class_position_into_token,
    "patch bias into positions": _patch_bias_into_positions,
    "empty register tensor": _empty_registers,
    "widen classifier to token and mean": _widen_classifier,
}


def fold_register_positions(state: State, config: ViTConfig) -> State:
    """Return the state with position rows of registers added to the register tokens: vitkit has no such rows."""
    if not config.registers:
        return {key: tensor for key, tensor in state.items() if key != "reg_token"}  # it has no rows
    if "pos_embed" not in state:
        return state
    classes = (config.class_token + config.distillation) if config.class_position else 0
    table, end = state["pos_embed"], classes + config.registers
    if table.shape[1] != config.grid[0] * config.grid[1] + end:
        return state
    registers = state["reg_token"] + table[:, classes:end]
    return {**state, "reg_token": registers, "pos_embed": torch.cat([table[:, :classes], table[:, end:]], dim=1)}


def pair_rotary_channels(state: State, config: ViTConfig, order: str) -> State:
    """Return the state with the channels of queries and keys in vitkit's order.

    EVA-02 and Perception Encoder rotate neighbouring channels, vitkit rotates channel i with channel i + e/2. The first
    half of their pairs belongs to the rows if `order` is "ij", to the columns if it is "xy".
    """
    half = config.head_width // 2
    pairs = torch.arange(half) if order == "ij" else torch.arange(half).roll(half // 2)
    channels = torch.cat([2 * pairs, 2 * pairs + 1])
    rows = (torch.arange(config.heads)[:, None] * config.head_width + channels).flatten()
    inner = len(rows)
    every = torch.cat([rows, inner + rows, 2 * inner + torch.arange(inner)])  # values keep their order

    def reorder(name: str, tensor: Tensor) -> Tensor:
        if ".attn.qkv." in name:
            return tensor[every]
        return tensor[channels] if ".attn.q_norm." in name or ".attn.k_norm." in name else tensor

    return {name: reorder(name, tensor) for name, tensor in state.items()}


# Models


def build_model(
    config: ViTConfig,
    tensors: Mapping[str, Tensor],
    where: object,
    zero_keys: Sequence[tuple[str, str]] = (),
    model_class: type[ViT] = ViT,
) -> tuple[ViT, dict[str, str]]:
    """Return a model with these weights, in eval mode, and the reason for each tensor that was filled with zeros.

    The tensors must be complete, of the right shape and finite. Only tensors that a pattern of `zero_keys` names may be
    absent, and then all of them.
    """
    model = create_model(config, device="meta", model_class=model_class)
    expected = model.state_dict()
    missing = sorted(expected.keys() - tensors.keys())
    zero_keys = [(pattern, why) for pattern, why in zero_keys if not any(re.search(pattern, key) for key in tensors)]
    filled = {key: reason for key in missing if (reason := _reason(zero_keys, key))}
    tensors = {**tensors, **{key: torch.zeros(expected[key].shape) for key in filled}}
    if missing := [key for key in missing if key not in filled]:
        raise WeightsError(f"{where} is incomplete: {len(missing)} tensors are missing, the first is {missing[0]}")
    if extra := sorted(tensors.keys() - expected.keys()):
        raise WeightsError(f"{where} contains {len(extra)} tensors that the config does not define, such as {extra[0]}")
    for key, tensor in tensors.items():
        if tensor.shape != expected[key].shape:
            raise WeightsError(f"{where}: {key} is {tuple(tensor.shape)}, expected {tuple(expected[key].shape)}")
        if not (tensor.sum().isfinite() or tensor.isfinite().all()):  # a finite sum proves it, and is cheaper
            raise WeightsError(f"{where}: {key} contains NaN or infinite values")
    if next(model.buffers(), None) is not None:  # those that no file holds are computed when the model is built
        model = create_model(config, model_class=model_class)
    model.load_state_dict(tensors, strict=True, assign=True)
    return model.requires_grad_().eval(), filled


def hash_weights(model: ViT, without: tuple[str, ...] = ()) -> str:
    """Return the SHA-256 of names, types, shapes and values of the tensors, except names that start with `without`."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not name.startswith(without):
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
