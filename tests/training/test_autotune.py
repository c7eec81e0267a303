"""Which settings are tried, and which a resumed run keeps."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vitkit.data.loader import Batch
from vitkit.training import get_recipe
from vitkit.training import trainer as loop
from vitkit.training.autotune import TunedSettings, apply_explicit, bf16_candidates, tune
from vitkit.training.distributed import World
from vitkit.training.recipe import Budget, Machine, Recipe
from vitkit.training.train import train

CPU = World(0, 1, torch.device("cpu"))


@pytest.mark.parametrize(
    ("said", "tried"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, [False]),
        ({"avx2": True, "avx512_bf16": True, "amx_bf16": False}, [False, True]),
        ({"cpu_name": "no information"}, [False, True]),
    ],
)
def test_bf16_is_tried_only_if_it_may_be_faster(
    said: dict[str, bool], tried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: said)
    assert bf16_candidates(Recipe(), CPU) == tried
    assert bf16_candidates(Recipe(machine=Machine(precision="bf16")), CPU) == [True]


def test_a_resumed_run_keeps_tuned_settings_unless_its_recipe_is_explicit() -> None:
    chosen = TunedSettings(made=True, bf16=True, compile=True, micro_batch=16)
    assert apply_explicit(chosen, Machine()) == chosen
    assert apply_explicit(chosen, Machine(precision="fp32", compile="off", micro_batch=8)) == TunedSettings(
        True, micro_batch=8
    )
    assert apply_explicit(chosen, Machine(micro_batch=64)).micro_batch == 16, "memory was short"


def takes(plain: float, compiled: float) -> Callable[[TunedSettings], None]:
    """Return a trial that takes this many milliseconds."""
    return lambda choice: time.sleep((compiled if choice.compile else plain) / 1000)


def fails(choice: TunedSettings) -> None:
    time.sleep(0.001)
    if choice.compile:
        raise RuntimeError("no OpenMP")


BF16 = Machine(precision="bf16")


@pytest.mark.parametrize(
    ("trial", "machine", "minutes", "compiles"),
    [
        (takes(20, 1), BF16, 90, True),
        (takes(1, 20), BF16, 90, False),
        (takes(20, 1), BF16, 10, False),  # too short for a trial
        (takes(20, 1), Machine(precision="fp32"), 90, False),
        (takes(1, 20), Machine(precision="bf16", compile="on"), 10, True),
        (takes(20, 1), Machine(precision="bf16", compile="off"), 90, False),
        (fails, BF16, 90, False),
    ],
)
def test_steps_are_compiled_on_a_cpu_if_a_trial_is_faster(
    trial: Callable[[TunedSettings], None],
    machine: Machine,
    minutes: float,
    compiles: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    recipe = Recipe(machine=machine, budget=Budget(minutes=minutes))
    assert tune(recipe, 0, trial, CPU) == TunedSettings(True, bf16=machine.precision == "bf16", compile=compiles)


def test_trials_use_the_final_image_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, original = [], loop.Trainer._trial

    def trial(run: loop.Trainer, batch: Batch, choice: TunedSettings) -> None:
        tried.append(batch.images.shape[-1])
        original(run, batch, choice)

    monkeypatch.setattr(loop.Trainer, "_trial", trial)
    monkeypatch.setattr("torch.cpu.get_capabilities", dict)  # unknown support of bf16, so that it is tried
    settings = ["config.depth=1", "budget.epochs=0.1", "machine.precision=auto", "schedule.sizes=[[0,0.5],[0.5,1]]"]
    train(get_recipe("digits").override(settings), tmp_path, quiet=True)
    assert set(tried) == {8}


COMPILED = """
import sys
from vitkit.training import get_recipe
from vitkit.training.train import train
print(train(get_recipe("digits").override(sys.argv[2:]), sys.argv[1], quiet=True).val["nll"])
"""


@pytest.mark.slow
def test_compiled_steps_are_equal_up_to_rounding(tmp_path: Path) -> None:
    settings = ["config.depth=1", "budget.epochs=0.1"]
    plain = train(get_recipe("digits").override(settings), tmp_path / "plain", quiet=True).val["nll"]
    # In a new process: here, the compiler would see the type checks of the tests.
    words = [sys.executable, "-c", COMPILED, str(tmp_path / "compiled"), *settings, "machine.compile=on"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(plain, rel=1e-4)
    assert float(done.stdout) != plain, "a compiled program rounds differently"
