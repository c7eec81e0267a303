"""Which settings a run chooses by itself, and which a resumed run keeps."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vitkit.training import get_recipe
from vitkit.training.autotune import MIN_STEPS_TO_COMPILE, TunedSettings, apply_explicit, tune
from vitkit.training.distributed import World
from vitkit.training.recipe import Budget, Machine, Recipe
from vitkit.training.train import train

CPU = World(0, 1, torch.device("cpu"))


@pytest.mark.parametrize(
    ("capabilities", "bf16"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx2": True, "avx512_bf16": True, "amx_bf16": False}, True),
        ({"cpu_name": "no information"}, False),
    ],
)
def test_bf16_is_chosen_by_the_instructions_of_the_processor(
    capabilities: dict[str, bool], bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities)
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: False)
    assert tune(Recipe(), 100, CPU).bf16 is bf16
    assert tune(Recipe(machine=Machine(precision="bf16")), 100, CPU).bf16
    assert not tune(Recipe(machine=Machine(precision="fp32")), 100, CPU).bf16


@pytest.mark.parametrize(
    ("device", "machine", "minutes", "steps", "compiles"),
    [
        ("cpu", Machine(), 90, 0, False),
        ("cpu", Machine(), 0, 100_000, False),
        ("cpu", Machine(compile="on"), 0, 1, True),
        ("cuda", Machine(), 0, MIN_STEPS_TO_COMPILE, True),
        ("cuda", Machine(), 0, MIN_STEPS_TO_COMPILE - 1, False),
        ("cuda", Machine(), 10, 0, True),
        ("cuda", Machine(), 9, 100_000, False),
        ("cuda", Machine(compile="off"), 90, 0, False),
    ],
)
def test_steps_are_compiled_in_long_runs_on_a_gpu(
    device: str, machine: Machine, minutes: float, steps: int, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: True)
    recipe = Recipe(machine=machine, budget=Budget(minutes=minutes))
    assert tune(recipe, steps, World(0, 1, torch.device(device))).compile is compiles


def test_a_resumed_run_keeps_tuned_settings_unless_its_recipe_is_explicit() -> None:
    chosen = TunedSettings(made=True, bf16=True, compile=True, micro_batch=16)
    assert apply_explicit(chosen, Machine()) == chosen
    assert apply_explicit(chosen, Machine(precision="fp32", compile="off", micro_batch=8)) == TunedSettings(
        True, micro_batch=8
    )
    assert apply_explicit(chosen, Machine(micro_batch=64)).micro_batch == 16, "memory was short"


def test_no_clock_affects_the_choice_and_the_run_records_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every clock jumps at random, as if other programs disturbed the run."""
    settings = ["config.depth=1", "budget.epochs=0.1", "machine.precision=auto", "machine.compile=auto"]
    recipe, digests, before = get_recipe("digits").override(settings), set(), (time.monotonic, time.perf_counter)
    for seed in range(4):
        draw = random.Random(seed)
        for name, clock in zip(("monotonic", "perf_counter"), before, strict=True):
            monkeypatch.setattr(time, name, lambda clock=clock, draw=draw: clock() + draw.uniform(0, 100))
        folder = tmp_path / str(seed)
        digests.add(train(recipe, folder, quiet=True).weights_sha256)
        recorded = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        assert recorded["choice"] == tune(recipe, 1, CPU).description
        assert recorded["cores_per_step"] == 1
    assert len(digests) == 1


COMPILED = """
import sys
from vitkit.training import get_recipe
from vitkit.training.train import train
print(train(get_recipe("digits").override(sys.argv[2:]), sys.argv[1], quiet=True).val["nll"])
"""


@pytest.mark.slow
def test_compiled_steps_are_equal_up_to_rounding(tmp_path: Path) -> None:
    settings = ["config.depth=1", "config.dropout=0.1", "config.attention_dropout=0.1", "budget.epochs=0.1"]
    plain = train(get_recipe("digits").override(settings), tmp_path / "plain", quiet=True).val["nll"]
    # In a new process: here, the compiler would see the type checks of the tests.
    words = [sys.executable, "-c", COMPILED, str(tmp_path / "compiled"), *settings, "machine.compile=on"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(plain, rel=1e-4)
    assert float(done.stdout) != plain, "a compiled program rounds differently"
