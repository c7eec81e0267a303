"""Precision and compilation, chosen by what is faster here, not by folklore."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from vitkit.runtime.device import BF16, bf16_support
from vitkit.runtime.timing import time_calls
from vitkit.training.distributed import World
from vitkit.training.recipe import Machine, Recipe

COMPILE_PAYS_AFTER = 600.0  # seconds of training
TRIAL_PAYS_AFTER = 1800.0  # on a CPU, where a compilation takes about a minute for each image size, and may be in vain


@dataclass(frozen=True)
class Choice:
    made: bool = False
    bf16: bool = False
    compile: bool = False
    micro_batch: int = 0


def as_asked(choice: Choice, machine: Machine) -> Choice:
    """For a resumed run: what its recipe says outright, and not `auto`, wins over what was chosen before. Of two
    micro-batches the smaller one does: memory may have been found to be short."""
    return replace(
        choice,
        bf16=choice.bf16 if machine.precision == "auto" else machine.precision == "bf16",
        compile=choice.compile if machine.compile == "auto" else machine.compile == "on",
        micro_batch=min(filter(None, (choice.micro_batch, machine.micro_batch)), default=0),
    )


def tune(recipe: Recipe, steps: int, trial: Callable[[Choice], None], world: World) -> Choice:
    """Time a few trials and decide; all processes follow the main one."""
    machine, tries = recipe.machine, precisions(recipe, world)
    choices = [Choice(made=True, bf16=bf16, micro_batch=machine.micro_batch) for bf16 in tries]
    unsure = len(choices) > 1 or (machine.compile == "auto" and (world.device.type != "cpu" or choices[0].bf16))
    paces = _step_seconds(trial, choices) if unsure else [0.0]
    pace = min(paces)
    chosen = choices[int(world.share(float(paces.index(pace))))]
    if machine.compile == "auto":
        expected = world.share(60 * recipe.budget.minutes or steps * pace)
        return replace(chosen, compile=_compiling_pays(chosen, pace, expected, trial, recipe, world))
    return replace(chosen, compile=machine.compile == "on")


def _compiling_pays(
    choice: Choice, pace: float, expected: float, trial: Callable[[Choice], None], recipe: Recipe, world: World
) -> bool:
    """On a GPU it does. On a CPU a compiled step fuses what stands between the matrix products, but is not spread over
    the cores (`spread.py`): in float32 the products are nearly all of the time, and in bf16 a trial tells."""
    if world.device.type != "cpu":
        return expected > COMPILE_PAYS_AFTER
    is_cut = recipe.parallel.shard == "full" and world.size > 1  # its blocks could not be had back uncompiled
    if expected < TRIAL_PAYS_AFTER or not choice.bf16 or is_cut or not world.share(float(_has_compiler())):
        return False
    try:
        faster = _step_seconds(trial, [replace(choice, compile=True)])[0] < pace
    except RuntimeError:  # of the compiler: the same step has just run without it
        faster = False
    return bool(world.share(float(faster)))


def precisions(recipe: Recipe, world: World) -> list[bool]:
    """bf16 or not: what there is to try. Where bf16 is emulated a trial would take minutes and tell nothing new.

    Weights that are cut over processes travel in the precision that they work in, and keep it: there the device is
    asked instead.
    """
    if recipe.machine.precision == "auto" and recipe.parallel.shard == "full" and world.size > 1:
        return [world.device.type == "cuda" and torch.cuda.is_bf16_supported()]
    tries = [False, True] if world.device.type != "cpu" or bf16_support() > BF16.EMULATED else [False]
    return {"fp32": [False], "bf16": [True], "auto": tries}[recipe.machine.precision]


def _step_seconds(trial: Callable[[Choice], None], choices: Sequence[Choice]) -> list[float]:
    """Return the shortest of three timed steps for each choice, after a warm-up. Background load only adds time."""
    runs = {str(i): partial(trial, choice) for i, choice in enumerate(choices)}
    return [min(times) for times in time_calls(runs, rounds=3).values()]


def _has_compiler() -> bool:
    """torch.compile writes C++."""
    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))
