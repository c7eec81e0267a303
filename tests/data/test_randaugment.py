"""Compare every operation with Pillow, and check how often each is drawn."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from scipy.stats import binomtest, chisquare

from vitkit.data.randaugment import MAX_MAGNITUDE, OPERATIONS, randaugment, trivial_augment
from vitkit.data.rng import SampleKeys


def affine(*matrix: float) -> Callable[[Image.Image], Image.Image]:
    return lambda image: image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


LEVELS: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda image, amount: image,
    "autocontrast": lambda image, amount: ImageOps.autocontrast(image),
    "equalize": lambda image, amount: ImageOps.equalize(image),
    "solarize": lambda image, amount: ImageOps.solarize(image, round(256 * (1 - amount))),
    "posterize": lambda image, amount: ImageOps.posterize(image, 8 - round(amount)),
    "color": lambda image, amount: ImageEnhance.Color(image).enhance(1 + amount),
    "contrast": lambda image, amount: ImageEnhance.Contrast(image).enhance(1 + amount),
    "brightness": lambda image, amount: ImageEnhance.Brightness(image).enhance(1 + amount),
    "sharpness": lambda image, amount: ImageEnhance.Sharpness(image).enhance(1 + amount),
}
PLACES: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "rotate": lambda image, amount: image.rotate(amount, Image.Resampling.BILINEAR),
    "shear_x": lambda image, amount: affine(1, amount, 0, 0, 1, 0)(image),
    "shear_y": lambda image, amount: affine(1, 0, 0, amount, 1, 0)(image),
    "translate_x": lambda image, amount: affine(1, 0, amount, 0, 1, 0)(image),
    "translate_y": lambda image, amount: affine(1, 0, 0, 0, 1, amount)(image),
}
SIGNED = {*PLACES, "color", "contrast", "brightness", "sharpness"}
AMOUNTS = {
    "solarize": [0.0, 0.25, 0.5, 1.0],
    "posterize": [0.0, 1.0, 4.0, 6.0],
    "rotate": [-135.0, -30.0, 0.0, 9.0, 90.0],
    "shear_x": [-0.99, -0.09, 0.0, 0.3],
    "shear_y": [-0.99, -0.09, 0.0, 0.3],
    "translate_x": [-7.0, 0.0, 3.0, 32.0],
    "translate_y": [-7.0, 0.0, 3.0, 32.0],
}
ENHANCE = [-0.99, -0.9, -0.27, 0.0, 0.27, 0.9, 0.99]


def pictures(count: int, channels: int = 3, height: int = 20, width: int = 27) -> torch.Tensor:
    """Images with different ranges, histograms and channels; one has all levels, one a single level."""
    rng = np.random.default_rng(channels)
    low, high = rng.integers(0, 100, (count, channels, 1, 1)), rng.integers(150, 256, (count, channels, 1, 1))
    images = low + (high - low) * rng.random((count, channels, height, width)) ** rng.uniform(0.3, 3, (count, 1, 1, 1))
    images[-1], images[-2] = 77, rng.integers(0, 256, (channels, height, width))
    return torch.from_numpy(images.astype(np.uint8))


def by_pillow(images: torch.Tensor, amounts: torch.Tensor, operation: Callable) -> torch.Tensor:
    done = []
    for image, amount in zip(images, amounts.tolist(), strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy())
        done.append(torch.from_numpy(np.array(operation(picture, amount))).view(*image.shape[1:], -1).permute(2, 0, 1))
    return torch.stack(done)


def amounts_for(name: str, count: int) -> torch.Tensor:
    """Different amounts for neighbouring images of a batch."""
    return torch.tensor(AMOUNTS.get(name, ENHANCE)).repeat(count)[:count]


def test_the_table_is_the_paper_s_fourteen():
    assert set(OPERATIONS) == {*LEVELS, *PLACES}
    assert len(OPERATIONS) == 14


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", LEVELS)
def test_colour_operations_equal_pillow_exactly(name, channels):
    images = pictures(28, channels)
    amounts = amounts_for(name, 28)
    expected = images if (name, channels) == ("color", 1) else by_pillow(images, amounts, LEVELS[name])
    off = (OPERATIONS[name](images, amounts).int() - expected.int()).abs()
    slips = name == "autocontrast"  # where a level comes out whole, Pillow's product may fall just short of it
    assert off.max() <= slips
    assert off.float().mean() <= 0.02 * slips


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", PLACES)
def test_geometric_operations_equal_pillow_within_one_level_inside_the_border(name, channels):
    images = pictures(20, channels)
    amounts = amounts_for(name, 20)
    expected = by_pillow(images, amounts, PLACES[name])
    got = OPERATIONS[name](images, amounts)
    inside = OPERATIONS[name](torch.full_like(images, 255), amounts) == 255  # all four neighbours are
    assert inside.float().mean() > 0.4
    assert (got.int() - expected.int()).abs()[inside].max() <= 1
    outside = OPERATIONS[name](torch.full_like(images, 255), amounts) == 0
    assert (expected[outside] == 0).float().mean() > 0.98  # Pillow draws the half pixel at the border otherwise


@pytest.mark.parametrize("name", sorted({*OPERATIONS} - {"autocontrast", "equalize"}))
def test_an_amount_of_zero_does_nothing(name):
    images = pictures(8)
    assert OPERATIONS[name](images, torch.zeros(8)).equal(images)


@pytest.mark.parametrize("name", ["translate_x", "translate_y"])
def test_translations_are_by_whole_pixels(name):
    images = pictures(4)
    near, whole = (OPERATIONS[name](images, torch.full((4,), amount)) for amount in (2.6, 3.0))
    assert near.equal(whole)


@pytest.mark.parametrize("name", OPERATIONS)
@given(channels=st.integers(1, 5), height=st.integers(1, 9), width=st.integers(1, 9), amount=st.floats(-0.9, 0.9))
def test_shape_is_kept_for_any_channels_and_size(name, channels, height, width, amount):
    images = pictures(3, channels, height, width)
    before = images.clone()
    done = OPERATIONS[name](images, torch.full((3,), amount if name in SIGNED else abs(amount)))
    assert done.shape == images.shape
    assert done.dtype == torch.uint8
    assert images.equal(before)
    if name == "color" and channels != 3:
        assert done.equal(images)
    if name == "brightness":
        assert done.equal((images * (1 + torch.tensor(amount))).clamp(0, 255).to(torch.uint8))


def outcomes(reach: dict[str, float], strengths: list[float], image: torch.Tensor) -> dict[bytes, set[str]]:
    """Return every possible result of one operation → the operations that give it."""
    table: dict[bytes, set[str]] = {}
    for name, operation in OPERATIONS.items():
        for strength in strengths:
            for sign in (-1, 1) if name in SIGNED else (1,):
                amount = torch.tensor([sign * strength]) * reach.get(name, 0.0)
                table.setdefault(operation(image[None], amount).numpy().tobytes(), set()).add(f"{name} {sign:+d}")
    return table


def one_image_many_times(count: int) -> tuple[torch.Tensor, SampleKeys]:
    image = pictures(3)[0]
    keys = SampleKeys(11, np.full(count, 2), np.arange(count), np.zeros(count, dtype=np.int64))
    return image.expand(count, -1, -1, -1), keys


ENHANCED = ("color", "contrast", "brightness", "sharpness")
RANDAUGMENT = dict(rotate=30, shear_x=0.3, shear_y=0.3, translate_x=150 / 331 * 27, translate_y=150 / 331 * 20)
RANDAUGMENT |= dict(posterize=4, solarize=1) | dict.fromkeys(ENHANCED, 0.9)
TRIVIAL = dict(rotate=135, shear_x=0.99, shear_y=0.99, translate_x=32, translate_y=32)
TRIVIAL |= dict(posterize=6, solarize=1) | dict.fromkeys(ENHANCED, 0.99)


def test_randaugment_draws_all_operations_and_both_directions_equally_often():
    images, keys = one_image_many_times(2800)
    table = outcomes(RANDAUGMENT, [9 / MAX_MAGNITUDE], images[0])
    assert all(len(names) == 1 for names in table.values())
    seen = [next(iter(table[done.numpy().tobytes()])) for done in randaugment(images, keys, 1, 9.0)]
    names = [name.split()[0] for name in seen]
    assert chisquare([names.count(name) for name in OPERATIONS]).pvalue > 1e-3
    signed = [name for name in seen if name.split()[0] in SIGNED]
    assert binomtest(sum(name.endswith("+1") for name in signed), len(signed)).pvalue > 1e-3


def test_randaugment_applies_independent_operations_in_sequence():
    images, keys = one_image_many_times(300)
    assert randaugment(images, keys, 0, 9.0).equal(images)
    once, twice = (randaugment(images, keys, ops, 9.0) for ops in (1, 2))
    first, names = outcomes(RANDAUGMENT, [9 / MAX_MAGNITUDE], images[0]), []
    second = {done: outcomes(RANDAUGMENT, [9 / MAX_MAGNITUDE], image) for done, image in by_bytes(once).items()}
    for before, after in zip(once, twice, strict=True):
        came, went = before.numpy().tobytes(), after.numpy().tobytes()
        names.append((first[came], second[came][went]))
    same = sum(not one.isdisjoint(two) for one, two in names)
    # Five operations have one direction, nine have two.
    assert binomtest(same, 300, 5 / 14**2 + 9 / 2 / 14**2).pvalue > 1e-3
    assert len({name for _, two in names for name in two}) == 23


def by_bytes(images: torch.Tensor) -> dict[bytes, torch.Tensor]:
    return {image.numpy().tobytes(): image for image in images}


def test_trivial_augment_draws_from_all_operations_at_all_strengths():
    images, keys = one_image_many_times(6000)
    table = outcomes(TRIVIAL, [i / MAX_MAGNITUDE for i in range(MAX_MAGNITUDE + 1)], images[0])
    seen = [done.numpy().tobytes() for done in trivial_augment(images, keys)]
    assert set(seen) <= set(table)
    assert len(set(seen)) > 0.95 * len(table)
    # Ten of the fourteen have directions and strengths of their own, besides none at all.
    own = [next(iter(table[done])).split()[0] for done in seen if len(table[done]) == 1]
    counts = [own.count(name) for name in sorted(SIGNED - {"translate_x", "translate_y"})]
    assert chisquare(counts).pvalue > 1e-3
    turned = [done for done in seen if {name.split()[0] for name in table[done]} == {"rotate"}]
    each = np.unique(turned, return_counts=True)[1]
    assert len(each) == 2 * MAX_MAGNITUDE
    assert chisquare(each).pvalue > 1e-3


@pytest.mark.parametrize("name", sorted(SIGNED | {"solarize", "posterize"}))
def test_every_operation_grows_with_its_amount(name):
    images = pictures(20)
    reach = TRIVIAL[name] / (3 if name in {"rotate", "translate_x", "translate_y"} else 1)
    change = [
        (OPERATIONS[name](images, torch.full((20,), strength * reach)).float() - images).abs().mean()
        for strength in (0.1, 0.5, 1.0)
    ]
    assert change[0] < change[1] < change[2]


@pytest.mark.parametrize("policy", [trivial_augment, lambda i, p: randaugment(i, p, 2, 9.0)], ids=["trivial", "rand"])
@given(cut=st.integers(0, 30), channels=st.sampled_from([1, 3, 4]))
def test_an_image_does_not_depend_on_the_others(policy, cut, channels):
    images = pictures(30, channels)
    keys = SampleKeys(1, np.full(30, 4), np.arange(30), np.zeros(30, dtype=np.int64))
    whole = policy(images, keys)
    parts = [policy(images[rows], keys[rows]) for rows in (slice(cut), slice(cut, None)) if len(keys[rows])]
    assert whole.equal(torch.cat(parts))
