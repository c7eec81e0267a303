"""Applies the tables of `layouts.py`, both ways: the layout of a checkpoint, its tensors in our names, and back."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vitkit.errors import WeightsError
from vitkit.model import ViT, ViTConfig, create_model
from vitkit.model.pos_embed import sincos_table
from vitkit.weights.layouts import LAYOUTS, Layout, Row

# Wrappers of training code around a model
_WRAPPERS = re.compile(r"^((module|model|backbone|_orig_mod|teacher|student)\.)+")


@dataclass(frozen=True)
class Transform:
    """Theirs, one or several tensors, as one of ours; and ours as theirs, for a model of this config."""

    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor, ViTConfig, int], Sequence[Tensor]]


TRANSFORMS = {
    "same": Transform(lambda t: t[0], lambda t, c, n: [t]),
    "stack": Transform(lambda t: torch.cat(list(t)), lambda t, c, n: t.chunk(n)),
    "stack around zero": Transform(
        lambda t: torch.cat([t[0], torch.zeros_like(t[0]), t[1]]), lambda t, c, n: t.chunk(3)[::2]
    ),
    # a vector or a table without the axes that we keep for the batch
    "token": Transform(lambda t: t[0][None, None], lambda t, c, n: [t[0, 0]]),
    "table": Transform(lambda t: t[0][None], lambda t, c, n: [t[0]]),
    # flax: kernels are (in, out), those of attention (in, heads, head width) and (heads, head width, out)
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


@dataclass(frozen=True)
class Mapped:
    """A checkpoint in our names."""

    layout: Layout
    tensors: dict[str, Tensor]
    used: int  # of their tensors
    dropped: dict[str, str]
    heads: int | None  # where the layout's shapes show it


def detect(tensors: Mapping[str, Tensor], where: object) -> Layout:
    """The layout that has a place for most of the tensors; one without the patch projection is not a ViT."""
    best, count = None, 0
    for layout in LAYOUTS.values():
        names = _respell(layout, tensors)
        rows = _expand(layout, names)
        places = {t for r in rows for t in r.theirs}
        if not any(r.ours == "patch_embed.proj.weight" and r.theirs[0] in names for r in rows):
            continue
        known = sum(name in places or _why(layout.drops, name) is not None for name in names)
        if known > count:
            best, count = layout, known
    if best is None:
        shown = ", ".join(sorted(tensors)[:3]) or "no tensors at all"
        raise WeightsError(f"{where} is in no known layout of a Vision Transformer: it holds {shown} …")
    return best


def import_state_dict(layout: Layout, tensors: Mapping[str, Tensor], where: object) -> Mapped:
    """Every tensor finds its place or a reason to be left out; anything else is refused by name."""
    names = _respell(layout, tensors)
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    for key, rows in _by_ours(_expand(layout, names)).items():
        whole = next((r for r in rows if all(t in names for t in r.theirs)), None)
        if whole:
            found = [names[t] for t in whole.theirs]
            ours[key] = _apply(whole, [tensors[name] for name in found], found, where)
            used |= set(found)
        elif part := next((r for r in rows if any(t in names for t in r.theirs)), None):
            lacks = next(t for t in part.theirs if t not in names)
            raise WeightsError(f"{where} lacks {lacks}, a part of {key}: the checkpoint is not complete")
    dropped = {key: why for name, key in names.items() if key not in used and (why := _why(layout.drops, name))}
    if extra := sorted(tensors.keys() - used - dropped.keys()):
        raise WeightsError(
            f"{where} holds {len(extra)} tensors that a ViT in {layout.name} names has no place for, such as {extra[0]}"
        )
    return Mapped(layout, ours, len(used), dropped, _heads(layout, names, tensors))


def export_state_dict(layout: Layout, tensors: Mapping[str, Tensor], config: ViTConfig) -> dict[str, Tensor]:
    """Our tensors in the layout's names, for a model that it can hold."""
    body, mlp = layout.body if config.num_classes else "", "gated" if config.mlp == "swiglu" else "plain"
    found: dict[str, Tensor] = {}
    written = set()
    for template in layout.rows:
        for r in _numbered(template, range(config.depth), body):
            if r.ours not in tensors or r.ours in written or r.only not in ("", mlp):
                continue
            parts = TRANSFORMS[r.how].write(tensors[r.ours], config, len(r.theirs))
            found |= {t: part.contiguous() for t, part in zip(r.theirs, parts, strict=True)}
            written.add(r.ours)
    if left := sorted(tensors.keys() - written):
        raise WeightsError(f"{layout.name} has no place for {left[0]}: it cannot hold this model")
    return found


def unsupported_feature(layout: Layout, config: ViTConfig) -> str | None:
    """The first feature of a model that a layout has no place for. The epsilon of norms is none: see `write.py`."""
    if layout.holds is None:
        return f"{layout.name} is only read, not written"
    for name, allowed in layout.holds.items():
        value = getattr(config, name)
        if name != "norm_eps" and not any(_allows(a, value) for a in allowed):
            return f"{layout.name} cannot hold a model with {name}={value!r}"
    if config.heads * config.head_width != config.width:
        return f"{layout.name} cannot hold {config.heads} heads of {config.head_width} in a width of {config.width}"
    return None


def _allows(allowed: Any, value: Any) -> bool:
    """A value, a type of values, or a range of them."""
    if isinstance(allowed, type):
        return isinstance(value, allowed)
    return value in allowed if isinstance(allowed, range) else value == allowed


def zeros(layout: Layout, tensors: Mapping[str, Tensor], config: ViTConfig) -> dict[str, str]:
    """Ours that the layout has no tensor for because they are zero → why."""
    if not config.pre_norm:
        return {}
    with torch.device("meta"):
        expected = ViT(config).state_dict().keys()
    return {key: why for key in expected - tensors.keys() if (why := _why(layout.zeros, key))}


def _by_ours(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for r in rows:
        groups.setdefault(r.ours, []).append(r)
    return groups


def _apply(r: Row, tensors: Sequence[Tensor], names: Sequence[str], where: object) -> Tensor:
    try:
        return TRANSFORMS[r.how].read(tensors)
    except (RuntimeError, IndexError) as error:
        shapes = ", ".join(f"{n} {tuple(t.shape)}" for n, t in zip(names, tensors, strict=True))
        raise WeightsError(f"{where}: {shapes} cannot become {r.ours}: a wrong shape") from error


def _respell(layout: Layout, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """The layout's plain names → the names in the file."""
    names: dict[str, str] = {}
    for key in tensors:
        name = _WRAPPERS.sub("", key)
        for pattern, replacement in layout.spellings:
            name = re.sub(pattern, replacement, name)
        if name in names:
            raise WeightsError(f"the checkpoint holds {names[name]} and {key}, which mean the same tensor")
        names[name] = key
    return names


def _expand(layout: Layout, names: Mapping[str, str]) -> list[Row]:
    """The rows with the numbers of the blocks that there are."""
    return [r for template in layout.rows for r in _numbered(template, _blocks(template, names), body="")]


def _blocks(template: Row, names: Mapping[str, str]) -> list[int]:
    if "{i}" not in template.ours:
        return []
    head, tail = template.theirs[0].replace("{body}", "").split("{i}")
    numbers = (name[len(head) : -len(tail)] for name in names if name.startswith(head) and name.endswith(tail))
    return sorted({int(n) for n in numbers if n.isascii() and n.isdigit() and len(n) < 5})


def _numbered(template: Row, numbers: Sequence[int], body: str) -> list[Row]:
    def fill(i: int | None) -> Row:
        theirs = tuple(t.replace("{body}", body).replace("{i}", str(i)) for t in template.theirs)
        return replace(template, ours=template.ours.replace("{i}", str(i)), theirs=theirs)

    return [fill(i) for i in numbers] if "{i}" in template.ours else [fill(None)]


def _heads(layout: Layout, names: Mapping[str, str], tensors: Mapping[str, Tensor]) -> int | None:
    if layout.heads_axis is None:
        return None
    name, axis = layout.heads_axis
    return tensors[names[name]].shape[axis] if name in names else None


def _why(reasons: Sequence[tuple[str, str]], name: str) -> str | None:
    return next((why for pattern, why in reasons if re.search(pattern, name)), None)


State = dict[str, Tensor]
Rewrite = Callable[[State, ViTConfig], tuple[State, ViTConfig]]


def rewrite(state: State, config: ViTConfig, names: Sequence[str]) -> tuple[State, ViTConfig]:
    for name in names:
        state, config = REWRITES[name](state, config)
    return state, config


def _positions_as_table(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    if config.position != "sincos":
        return state, config
    table = sincos_table(config.grid, config.width)[None]
    return {**state, "pos_embed": table}, config.replace(position="learned", class_position=False)


def _zero_class_row(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    if config.position != "learned" or config.class_position or not config.class_token:
        return state, config
    table = state["pos_embed"]
    rows = table.new_zeros(1, 1 + config.distillation, config.width)
    return {**state, "pos_embed": torch.cat([rows, table], dim=1)}, config.replace(class_position=True)


def _class_row_in_token(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    """Only beside registers: there timm has position rows for all of them or for none."""
    if config.position != "learned" or not config.class_position or not config.class_token or not config.registers:
        return state, config
    table = state["pos_embed"]
    folded = {"cls_token": state["cls_token"] + table[:, :1], "pos_embed": table[:, 1:]}
    return {**state, **folded}, config.replace(class_position=False)


def _patch_bias_in_positions(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    """Only where a norm follows: there timm's projection has no bias."""
    if config.position != "learned" or not config.pre_norm or "patch_embed.proj.bias" not in state:
        return state, config
    table, bias = state["pos_embed"].clone(), state["patch_embed.proj.bias"]
    table[:, -config.grid[0] * config.grid[1] :] += bias
    return {key: t for key, t in state.items() if key != "patch_embed.proj.bias"} | {"pos_embed": table}, config


def _classifier_of_both(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    if config.pooling != "cls" or not config.num_classes or config.head_hidden or config.distillation:
        return state, config
    head = state["head.weight"]
    wider = torch.cat([head, torch.zeros_like(head)], dim=1)
    return {**state, "head.weight": wider}, config.replace(pooling="cls_mean")


def _empty_registers(state: State, config: ViTConfig) -> tuple[State, ViTConfig]:
    return {"reg_token": torch.zeros(1, 0, config.width), **state}, config


def without_register_rows(state: State, config: ViTConfig) -> State:
    """timm may give registers rows in the position table; ours have none, so they go into the tokens."""
    if not config.registers:
        return {key: tensor for key, tensor in state.items() if key != "reg_token"}  # of no rows
    if "pos_embed" not in state:
        return state
    classes = (config.class_token + config.distillation) if config.class_position else 0
    table, end = state["pos_embed"], classes + config.registers
    if table.shape[1] != config.grid[0] * config.grid[1] + end:
        return state
    registers = state["reg_token"] + table[:, classes:end]
    return {**state, "reg_token": registers, "pos_embed": torch.cat([table[:, :classes], table[:, end:]], dim=1)}


REWRITES: dict[str, Rewrite] = {
    "fixed positions as a table": _positions_as_table,
    "a class row of zeros": _zero_class_row,
    "the class row in the token": _class_row_in_token,
    "the patch bias in the positions": _patch_bias_in_positions,
    "no registers as an empty tensor": _empty_registers,
    "a classifier of token and mean": _classifier_of_both,
}


def build(config: ViTConfig, tensors: Mapping[str, Tensor], where: object) -> ViT:
    model = create_model(config, device="meta")
    _check(model, tensors, where)
    model.load_state_dict(dict(tensors), strict=True, assign=True)
    return model.requires_grad_().eval()


def _check(model: ViT, tensors: Mapping[str, torch.Tensor], where: object) -> None:
    expected = model.state_dict()
    if missing := sorted(expected.keys() - tensors.keys()):
        raise WeightsError(f"{where} lacks {len(missing)} tensors that the config calls for, the first is {missing[0]}")
    if extra := sorted(tensors.keys() - expected.keys()):
        raise WeightsError(f"{where} holds {len(extra)} tensors that the config has no place for, such as {extra[0]}")
    for key, tensor in tensors.items():
        if tensor.shape != expected[key].shape:
            raise WeightsError(f"{where}: {key} is {tuple(tensor.shape)}, expected {tuple(expected[key].shape)}")
        if not (tensor.sum().isfinite() or tensor.isfinite().all()):  # a finite sum is proof, and cheaper
            raise WeightsError(f"{where}: {key} holds NaN or infinite values")


def hash_weights(model: ViT, without: tuple[str, ...] = ()) -> str:
    """By name, type and shape; without the tensors whose names begin so."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not name.startswith(without):
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
