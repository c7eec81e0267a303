import pytest

from vitkit.cli.train import Train
from vitkit.errors import UsageError
from vitkit.training import RECIPES


def test_the_help_lists_the_names_of_all_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    from vitkit.cli.main import main

    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert [name for name in RECIPES if name not in text] == []


def test_the_recipe_is_named_explicitly_or_by_the_data() -> None:
    assert Train("digits", "out").resolve() == RECIPES["digits"]
    assert Train("photos", "out").resolve() == RECIPES["scratch"].replace(data="photos")
    assert Train("photos", "out", recipe="finetune", init="weights").resolve().head == "probe"


def test_options_change_the_recipe() -> None:
    found = Train("digits", "out", epochs=3, seed=7, teacher="big", set=("optimizer.lr=0.1",)).resolve()
    assert (found.budget.epochs, found.seed, found.distill.teacher, found.optimizer.lr) == (3, 7, "big", 0.1)
    assert Train("digits", "out", minutes=2).resolve().budget.minutes == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 1, "minutes": 1}, "a run has one budget"),
        ({"minutes": 0}, "--minutes 0: must be above 0"),
        ({"processes": 0}, "--processes 0: must be at least 1"),
        ({"init": "weights", "model": "vit_nano_patch4_32"}, "remove --model"),
        ({"recipe": "finetune"}, "recipe 'finetune' needs pretrained weights: pass --init WEIGHTS"),
        ({"set": ("budget.epochs=-3",)}, r"budget.epochs must be above 0 \(got -3\); budget.minutes limits the time"),
    ],
)
def test_contradicting_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Train("digits", "out", **options).resolve()
