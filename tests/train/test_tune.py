"""What is tried, and what a resumed run keeps of the choice."""

import pytest
import torch

from vitkit.train.distributed import World
from vitkit.train.recipe import Machine, Recipe
from vitkit.train.tune import Choice, as_asked, precisions

CPU = World(0, 1, torch.device("cpu"))


@pytest.mark.parametrize(
    ("said", "tried"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, [False]),
        ({"avx2": True, "avx512_bf16": True, "amx_bf16": False}, [False, True]),
        ({"cpu_name": "says nothing of it"}, [False, True]),
    ],
)
def test_bf16_is_tried_where_it_may_be_faster(
    said: dict[str, bool], tried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: said)
    assert precisions(Recipe(), CPU) == tried
    assert precisions(Recipe(machine=Machine(precision="bf16")), CPU) == [True]


def test_a_resumed_run_keeps_what_was_chosen_where_its_recipe_leaves_it_open() -> None:
    chosen = Choice(made=True, bf16=True, compile=True, micro_batch=16)
    assert as_asked(chosen, Machine()) == chosen
    assert as_asked(chosen, Machine(precision="fp32", compile="off", micro_batch=8)) == Choice(True, micro_batch=8)
    assert as_asked(chosen, Machine(micro_batch=64)).micro_batch == 16, "memory was found to be short"
