"""Precision and compilation, chosen by what is faster here, not by folklore."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from vitkit.train.distributed import World
from vitkit.train.recipe import Machine, Recipe

COMPILE_PAYS_AFTER = 600.0  # seconds of training: on a CPU a compilation takes about one minute of them


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
    """Time a few trials and decide; all processes follow the main one.

    Compilation fuses what stands between the matrix products. On a CPU in float32 the products are nearly all of the
    time and nothing is gained, so `auto` compiles there only in bf16. A compiled step is not spread (`spread.py`).
    """
    machine, trials = recipe.machine, precisions(recipe, world)
    unsure = len(trials) > 1 or (machine.compile == "auto" and not recipe.budget.minutes)
    candidates = {bf16: Choice(bf16=bf16, micro_batch=machine.micro_batch) for bf16 in trials}
    paces = {bf16: _seconds(partial(trial, choice)) if unsure else 0.0 for bf16, choice in candidates.items()}
    bf16 = bool(world.share(float(min(paces, key=lambda b: paces[b]))))
    expected = 60 * recipe.budget.minutes or steps * paces[bf16]
    compiles = machine.compile == "on" or (
        machine.compile == "auto" and expected > COMPILE_PAYS_AFTER and _can_compile(world.device.type, bf16)
    )
    return Choice(made=True, bf16=bf16, compile=bool(world.share(float(compiles))))


def precisions(recipe: Recipe, world: World) -> list[bool]:
    """bf16 or not: what there is to try.

    Weights that are cut over processes travel in the precision that they work in, and keep it: there the device is
    asked instead.
    """
    if recipe.machine.precision == "auto" and recipe.parallel.shard == "full" and world.size > 1:
        return [world.device.type == "cuda" and torch.cuda.is_bf16_supported()]
    tries = [False, True] if world.device.type != "cpu" or _has_bf16_units() else [False]
    return {"fp32": [False], "bf16": [True], "auto": tries}[recipe.machine.precision]


def _has_bf16_units() -> bool:
    """A CPU without them emulates bf16, at a tenth of the speed of float32: a trial would take minutes and tell nothing
    new. Of one that does not say, True."""
    said = [has for name, has in torch.cpu.get_capabilities().items() if "bf16" in name]
    return any(said) or not said


def _seconds(run: Callable[[], Any], rounds: int = 3) -> float:
    """The quickest of a few rounds after a warm-up: noise only ever adds."""
    run()
    times = []
    for _ in range(rounds):
        started = time.monotonic()
        run()
        times.append(time.monotonic() - started)
    return min(times)


def _can_compile(device: str, bf16: bool) -> bool:
    """On a CPU, torch.compile writes C++ and needs a compiler."""
    return device != "cpu" or (bf16 and any(shutil.which(name) for name in ("g++", "clang++", "c++")))
