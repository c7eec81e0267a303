import pytest

from vitkit.training.recipe import Schedule
from vitkit.training.schedule import image_size, lr_factor


@pytest.mark.parametrize("shape", ["cosine", "linear", "constant", "wsd"])
def test_every_shape_warms_up_to_one_and_never_exceeds_it(shape: str) -> None:
    s = Schedule(shape=shape, warmup=0.1)
    values = [lr_factor(i / 1000, s) for i in range(1001)]
    assert values[0] < 1e-6
    assert values[50] == pytest.approx(0.5)
    assert values[100] == pytest.approx(1.0)
    assert max(values) <= 1.0


@pytest.mark.parametrize(
    ("shape", "middle", "end"), [("cosine", 0.5, 0.0), ("linear", 0.5, 0.0), ("constant", 1.0, 1.0), ("wsd", 1.0, 0.0)]
)
def test_each_shape_has_its_values_at_middle_and_end(shape: str, middle: float, end: float) -> None:
    s = Schedule(shape=shape, warmup=0.0, decay=0.2)
    assert lr_factor(0.5, s) == pytest.approx(middle)
    assert lr_factor(1.0, s) == pytest.approx(end)


def test_wsd_decays_in_its_last_fraction() -> None:
    s = Schedule(shape="wsd", warmup=0.0, decay=0.2)
    assert lr_factor(0.79, s) == 1.0
    assert lr_factor(0.9, s) == pytest.approx(0.5)


def test_the_floor_is_the_final_learning_rate() -> None:
    assert lr_factor(1.0, Schedule(floor=0.1)) == pytest.approx(0.1)


def test_resolution_grows_with_progress() -> None:
    s = Schedule(sizes=((0.0, 16), (0.5, 24), (0.8, 32)))
    assert [image_size(p, s, (32, 32), (4, 4))[0] for p in (0.0, 0.49, 0.5, 0.9)] == [16, 16, 24, 32]
    assert image_size(0.3, Schedule(), (32, 48), (4, 4)) == (32, 48)


def test_fractional_sizes_are_rounded_to_patches() -> None:
    s = Schedule(sizes=((0.0, 0.7), (0.5, 1.0)))
    assert image_size(0.2, s, (224, 224), (16, 16)) == (160, 160)
    assert image_size(0.2, s, (32, 64), (4, 8)) == (24, 48)
    assert image_size(0.6, s, (224, 192), (16, 16)) == (224, 192)
    assert image_size(0.2, Schedule(sizes=((0.0, 0.1),)), (32, 32), (16, 16)) == (16, 16)
