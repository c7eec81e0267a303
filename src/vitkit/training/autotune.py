"""Choose precision and compilation by what the hardware and the run are, never by a stopwatch.

Two identical runs on one machine must make the same choice, because each choice rounds differently. Measured times
would make them differ: of 18 identical runs that timed a step first, 3 chose another precision.
"""

from dataclasses import dataclass, replace

import torch

from vitkit.runtime.device import BF16, bf16_support
from vitkit.training.distributed import World
from vitkit.training.recipe import Machine, Recipe

MIN_MINUTES_TO_COMPILE = 10.0  # of a budget of minutes
MIN_STEPS_TO_COMPILE = 5000  # of a budget of epochs


@dataclass(frozen=True)
class TunedSettings:
    made: bool = False  # have they been chosen?
    bf16: bool = False
    compile: bool = False
    micro_batch: int = 0
    image_dropout: bool = False  # drawn per image; False only in runs from before this field: drawn per micro-batch

    @property
    def description(self) -> str:
        parts = ["bf16" if self.bf16 else "fp32", *(["compiled"] if self.compile else [])]
        return ", ".join(parts + ([f"micro-batches of {self.micro_batch}"] if self.micro_batch else []))


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


def tune(recipe: Recipe, steps: int, world: World) -> TunedSettings:
    """Return the settings of a new run: on all processes those of the main one."""
    machine = recipe.machine
    compiles = machine.compile == "on" or (machine.compile == "auto" and _compile_pays(recipe, steps, world))
    bf16, compiles = world.broadcast_object((chooses_bf16(machine, world), compiles))
    return TunedSettings(True, bf16, compiles, machine.micro_batch, image_dropout=True)


def chooses_bf16(machine: Machine, world: World) -> bool:
    """Return True if the recipe asks for bf16, or if it leaves the choice and the device has bf16 instructions.

    Steps are then 1.8 to 3.8 times as fast as in float32 on a CPU, except those of a few milliseconds.
    """
    if machine.precision != "auto":
        return machine.precision == "bf16"
    if world.device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bf16_support(world.device) > BF16.EMULATED


def _compile_pays(recipe: Recipe, steps: int, world: World) -> bool:
    """Return True for long runs on a GPU. A CPU gains more from data-parallel steps, which exclude compilation."""
    minutes = recipe.budget.minutes
    is_long = minutes >= MIN_MINUTES_TO_COMPILE if minutes else steps >= MIN_STEPS_TO_COMPILE
    return world.device.type != "cpu" and is_long
