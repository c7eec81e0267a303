import pytest

from tests.training.small import recipe
from vitkit.errors import ConfigError
from vitkit.training import Recipe


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("batch=-1", "batch=-1: must not be negative"),
        ("optimizer.lr=0", "optimizer.lr=0.0: must be above 0"),
        ("budget.minutes=-5", "budget.minutes=-5.0: must not be negative"),
        ("loss.label_smoothing=1.5", "label_smoothing=1.5: must be between 0 and 1"),
        ("budget.epochs=0", r"budget.epochs must be above 0 \(got 0\); budget.minutes limits the time"),
        ("machine.workers=-1", "must not be negative"),
        ("budget.early_stop=-1", "must not be negative"),
        ("budget.minutes=1e999", "must be finite"),
        ("optimizer.betas=(0.9, 1.5)", "betas"),
    ],
)
def test_settings_out_of_range_are_refused(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        recipe().override([change])


def test_files_keep_the_key_of_the_expected_result() -> None:
    saved = Recipe(expected_result="90 %").to_dict()
    assert next(iter(saved)) == "promise"
    assert Recipe.from_dict(saved).expected_result == "90 %"


def test_replace_checks_the_new_values() -> None:
    assert Recipe().replace(seed=3).seed == 3
    with pytest.raises(ConfigError, match="val_fraction=2: must be between 0 and 1"):
        Recipe().replace(val_fraction=2)
