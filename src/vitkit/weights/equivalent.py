"""The same function in other tensors: exact rewrites that bring a model into the form a layout can hold."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vitkit.model import ViTConfig
from vitkit.model.pos_embed import sincos_table

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
