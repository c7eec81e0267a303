"""Choose precision and compilation by timing them on this machine."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from vitkit.runtime.device import BF16, bf16_support
from vitkit.runtime.timing import time_calls
from vitkit.training.distributed import World
from vitkit.training.fsdp import uses_sharding
from vitkit.training.recipe import Machine, Recipe

MIN_SECONDS_TO_COMPILE = 600.0  # of training on a GPU
MIN_SECONDS_TO_TRY_COMPILE = 1800.0  # on a CPU: compilation takes about a minute per image size, and may not help


@dataclass(frozen=True)
class TunedSettings:
    made: bool = False  # have they been chosen?
    bf16: bool = False
    compile: bool = False
    micro_batch: int = 0


Trial = Callable[[TunedSettings], None]


def apply_explicit(tuned: TunedSettings, machine: Machine) -> TunedSettings:
    """Return the settings for a resumed run: explicit ones of its recipe replace what was chosen by timing.

    The smaller micro-batch wins, because a run may have found that memory is short.
    """
    return replace(
        tuned,
        bf16=tuned.bf16 if machine.precision == "auto" else machine.precision == "bf16",
        compile=tuned.compile if machine.compile == "auto" else machine.compile == "on",
        micro_batch=min(filter(None, (tuned.micro_batch, machine.micro_batch)), default=0),
    )


def tune(recipe: Recipe, steps: int, trial: Trial, world: World) -> TunedSettings:
    """Time a few trial steps and return the fastest settings. All processes use those of the main one."""
    machine = recipe.machine
    candidates = [
        TunedSettings(made=True, bf16=bf16, micro_batch=machine.micro_batch) for bf16 in bf16_candidates(recipe, world)
    ]
    needs_timing = len(candidates) > 1 or (
        machine.compile == "auto" and (world.device.type != "cpu" or candidates[0].bf16)
    )
    seconds = _step_seconds(trial, candidates) if needs_timing else [0.0]
    fastest = min(seconds)
    chosen = candidates[int(world.broadcast_scalar(float(seconds.index(fastest))))]
    if machine.compile != "auto":
        return replace(chosen, compile=machine.compile == "on")
    expected = world.broadcast_scalar(60 * recipe.budget.minutes or steps * fastest)
    return replace(chosen, compile=_compile_pays(chosen, fastest, expected, trial, recipe, world))


def _compile_pays(
    tuned: TunedSettings, step_seconds: float, expected: float, trial: Trial, recipe: Recipe, world: World
) -> bool:
    """Decide about compilation for a run of `expected` seconds.

    It pays in long runs on a GPU. On a CPU, it fuses the operations between matrix products but gives up data-parallel
    steps (`data_parallel.py`): in float32 the products take nearly all of the time, and in bf16 a trial decides.
    """
    if world.device.type != "cpu":
        return expected > MIN_SECONDS_TO_COMPILE
    sharded = uses_sharding(recipe, world)  # compiled blocks of a sharded model cannot be uncompiled
    if expected < MIN_SECONDS_TO_TRY_COMPILE or not tuned.bf16 or sharded:
        return False
    if not world.broadcast_scalar(float(_has_compiler())):
        return False
    try:
        faster = _step_seconds(trial, [replace(tuned, compile=True)])[0] < step_seconds
    except RuntimeError:  # of the compiler: the same step has just run without it
        faster = False
    return bool(world.broadcast_scalar(float(faster)))


def bf16_candidates(recipe: Recipe, world: World) -> list[bool]:
    """Return the values of `bf16` to time: the recipe's one if it is explicit, else both.

    On a CPU that emulates bf16, `auto` returns only False. FSDP fixes the dtype when it shards the model, so `auto`
    returns one value there: True if the GPU supports bf16.
    """
    if recipe.machine.precision == "auto" and uses_sharding(recipe, world):
        return [world.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)]
    tries = [False, True] if world.device.type != "cpu" or bf16_support() > BF16.EMULATED else [False]
    return {"fp32": [False], "bf16": [True], "auto": tries}[recipe.machine.precision]


def _step_seconds(trial: Trial, candidates: Sequence[TunedSettings]) -> list[float]:
    """Return the shortest of three timed steps for each candidate, after a warm-up. Background load only adds time."""
    runs = {str(i): partial(trial, candidate) for i, candidate in enumerate(candidates)}
    return [min(times) for times in time_calls(runs, rounds=3).values()]


def _has_compiler() -> bool:
    """Is there a C++ compiler? torch.compile needs one on a CPU."""
    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))
