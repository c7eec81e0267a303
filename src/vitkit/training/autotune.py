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
    """Return the tuned settings of a resumed run, with those replaced that its recipe sets explicitly.

    The smaller of the two micro-batches is used, because the run may have reduced it when memory ran out.
    """
    return replace(
        tuned,
        bf16=tuned.bf16 if machine.precision == "auto" else machine.precision == "bf16",
        compile=tuned.compile if machine.compile == "auto" else machine.compile == "on",
        micro_batch=min(filter(None, (tuned.micro_batch, machine.micro_batch)), default=0),
    )


def tune(recipe: Recipe, steps: int, trial: Trial, world: World) -> TunedSettings:
    """Time trial steps. Return the fastest precision and whether to compile: on all processes the main one's choice."""
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
    """Return True if compilation saves time in a run of `expected` seconds. On a GPU, it does in long runs.

    On a CPU, it fuses the operations between matrix products but excludes data-parallel steps (`data_parallel.py`). In
    float32 the products take nearly all of the time, so it never pays. In bf16 a timed trial decides.
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
    then returns one value: True if the GPU supports bf16.
    """
    if recipe.machine.precision == "auto" and uses_sharding(recipe, world):
        return [world.device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)]
    tries = [False, True] if world.device.type != "cpu" or bf16_support() > BF16.EMULATED else [False]
    return {"fp32": [False], "bf16": [True], "auto": tries}[recipe.machine.precision]


def _step_seconds(trial: Trial, candidates: Sequence[TunedSettings]) -> list[float]:
    """Return the seconds of the fastest of three steps for each candidate, because background load only adds time."""
    runs = {str(i): partial(trial, candidate) for i, candidate in enumerate(candidates)}
    return [min(times) for times in time_calls(runs, rounds=3).values()]


def _has_compiler() -> bool:
    """Return True if there is a C++ compiler, which torch.compile needs on a CPU."""
    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))
