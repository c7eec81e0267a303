import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.stats import binomtest, chisquare, kstest

from vitkit.data.rng import SampleKeys
from vitkit.data.transforms import Augment, augment, draw_crop_boxes, draw_flips
from vitkit.errors import ConfigError

STILL = Augment(crop="none", flip=False)


def keys_of(count: int, epoch: int = 0, seed: int = 3) -> SampleKeys:
    return SampleKeys(seed, np.full(count, epoch), np.arange(count), np.zeros(count, dtype=np.int64))


def noise(count: int, channels: int = 3, height: int = 12, width: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(1, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


def only(**settings) -> Augment:
    return dataclasses.replace(STILL, **settings)


# Crop and flip


def test_pad_crops_are_windows_of_the_padded_image_each_equally_likely():
    image = noise(1, height=8, width=16)[0]
    images = image.expand(3000, -1, -1, -1)
    crops = augment(images, keys_of(3000), only(crop="pad", padding=0.125))
    padded = torch.nn.functional.pad(image, (2, 2, 1, 1))
    windows = {
        padded[:, y : y + 8, x : x + 16].numpy().tobytes(): (y, x) for y in range(3) for x in range(5)
    }  # one and two pixels on every side
    seen = [windows[crop.numpy().tobytes()] for crop in crops]
    assert len(windows) == 15
    assert chisquare([seen.count(place) for place in windows.values()]).pvalue > 1e-3


def test_every_image_is_cropped_from_itself():
    images = noise(40)
    crops = augment(images, keys_of(40), only(crop="pad", padding=0.25))
    for image, crop in zip(images, crops, strict=True):
        inside = torch.isin(crop, image) | (crop == 0)
        assert inside.all()
        padded = torch.nn.functional.pad(image, (4, 4, 3, 3))
        assert any(padded[:, y : y + 12, x : x + 16].equal(crop) for y in range(7) for x in range(9))


def test_half_of_the_images_are_mirrored_as_draw_flips_returns():
    images = noise(1000)
    which = torch.from_numpy(draw_flips(keys_of(1000)))
    done = augment(images, keys_of(1000), only(flip=True))
    assert done[which].equal(images[which].flip(3))
    assert done[~which].equal(images[~which])
    assert binomtest(int(which.sum()), 1000).pvalue > 1e-3


RATIOS = st.tuples(st.floats(0.2, 1.0), st.floats(1.0, 5.0))
SCALES = st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(lambda pair: (min(pair), max(pair)))
SIZES = st.integers(1, 5000)


@given(scale=SCALES, ratio=RATIOS, width=SIZES, height=SIZES, epoch=st.integers(0, 1000))
def test_crop_boxes_are_inside_the_image_with_the_requested_area_and_ratio(scale, ratio, width, height, epoch):
    widths, heights = np.full(50, width), np.full(50, height)
    boxes = draw_crop_boxes(keys_of(50, epoch), Augment(scale=scale, ratio=ratio), widths, heights)
    assert boxes.shape == (50, 4)
    left, top, right, bottom = boxes.T
    assert (boxes >= 0).all()
    assert (boxes <= 1 + 1e-12).all()
    across, down = right - left, bottom - top
    drawn = across * width / (down * height)
    assert ((drawn > ratio[0] * (1 - 1e-6)) & (drawn < ratio[1] * (1 + 1e-6))).all()
    area, shape = across * down, width / height
    assert (area <= scale[1] + 1e-9).all()
    fits = scale[0] if ratio[0] <= shape <= ratio[1] else min(scale[0], ratio[1] / shape, shape / ratio[0])
    assert (area >= fits - 1e-9).all()


def test_crop_boxes_are_uniform_in_area_and_position_and_log_uniform_in_ratio():
    side = np.full(5000, 100)
    settings = Augment(scale=(0.1, 0.5), ratio=(0.5, 2.0))  # every ratio fits every area
    left, top, right, bottom = draw_crop_boxes(keys_of(5000), settings, side, side).T
    across, down = right - left, bottom - top
    draws = np.stack(
        [(across * down - 0.1) / 0.4, (np.log2(across / down) + 1) / 2, left / (1 - across), top / (1 - down)]
    )
    for values in draws:
        assert kstest(values, "uniform").pvalue > 1e-3
    assert np.abs(np.corrcoef(draws) - np.eye(4)).max() < 0.06  # four standard errors: they know nothing of each other
    large = draw_crop_boxes(keys_of(5000), Augment(scale=(0.5, 1.0)), side, side)
    area = (large[:, 2] - large[:, 0]) * (large[:, 3] - large[:, 1])
    assert kstest(area, "uniform", args=(0.5, 0.5)).pvalue > 1e-3  # also where not every ratio fits


def test_resized_crops_match_pillow_on_the_same_boxes():
    images, keys = noise(40), keys_of(40)
    settings = only(crop="resized", scale=(0.08, 1.0))
    boxes = draw_crop_boxes(keys, settings, np.full(40, 16), np.full(40, 12)) * (16, 12, 16, 12)
    done = augment(images, keys, settings)
    for image, box, crop in zip(images, boxes, done, strict=True):
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        expected = np.array(picture.resize((16, 12), Image.Resampling.BILINEAR, box=tuple(box.clip(0, (16, 12) * 2))))
        assert np.abs(crop.permute(1, 2, 0).numpy().astype(int) - expected).max() <= 1


def test_a_crop_of_the_complete_image_changes_nothing():
    images = noise(5, height=12, width=12)
    assert augment(images, keys_of(5), only(crop="resized", scale=(1, 1), ratio=(1, 1))).equal(images)


def test_geometry_done_skips_only_crop_and_flip():
    images, keys = noise(20), keys_of(20)
    for crop in ("pad", "resized"):
        assert augment(images, keys, Augment(crop=crop), geometry_done=True).equal(images)
        settings = Augment(crop=crop, policy="trivial", jitter=0.3, erase=0.5)
        still = dataclasses.replace(settings, crop="none", flip=False)
        assert augment(images, keys, settings, geometry_done=True).equal(augment(images, keys, still))


def test_the_order_is_crop_flip_policy_jitter_erase():
    images, keys = noise(30), keys_of(30)
    steps = [dict(crop="pad"), dict(flip=True), dict(policy="randaugment"), dict(jitter=0.5), dict(erase=1.0)]
    one_by_one = images
    for step in steps:
        one_by_one = augment(one_by_one, keys, only(**step))
    together = {name: value for step in steps for name, value in step.items()}
    assert augment(images, keys, Augment(**together)).equal(one_by_one)


# Jitter and erasing


def test_jitter_changes_brightness_contrast_and_saturation_up_to_its_limit():
    flat = torch.full((2000, 1, 4, 4), 200, dtype=torch.uint8)  # has neither contrast nor saturation
    level = augment(flat, keys_of(2000), only(jitter=0.25))[:, 0, 0, 0].numpy() / 200
    assert level.min() >= 0.745
    assert level.max() <= 1.25
    assert kstest(level + np.random.default_rng(0).random(2000) / 200, "uniform", args=(0.75, 0.5)).pvalue > 1e-3
    bars = torch.tensor([100, 140], dtype=torch.uint8).repeat(2000, 1, 4, 4)
    done = augment(bars, keys_of(2000), only(jitter=0.25)).float()
    contrast = (done[..., 1] - done[..., 0]).mean((1, 2)) / done.mean((1, 2, 3)) / (40 / 120)
    assert contrast.min() == pytest.approx(0.75, abs=0.06)
    assert contrast.max() == pytest.approx(1.25, abs=0.06)
    red = torch.tensor([140, 100, 100], dtype=torch.uint8)[:, None, None].expand(2000, 3, 4, 4)
    done = augment(red, keys_of(2000), only(jitter=0.25)).float()[:, :, 0, 0]
    saturation = (done[:, 0] - done[:, 1]) / done[:, 1]
    assert saturation.min() < 0.33
    assert saturation.max() > 0.48
    assert (done[:, 1] - done[:, 2]).abs().max() == 0


def test_erasing_changes_only_one_rectangle():
    black = torch.zeros(1000, 3, 40, 60, dtype=torch.uint8)
    done = augment(black, keys_of(1000), only(erase=0.4))
    erased = (done > 0).any(1)
    hit = erased.flatten(1).any(1)
    assert binomtest(int(hit.sum()), 1000, 0.4).pvalue > 1e-3
    spans = erased.any(2)[:, :, None] & erased.any(1)[:, None, :]
    assert erased[hit].equal(spans[hit])
    high, wide = erased[hit].any(2).sum(1).numpy(), erased[hit].any(1).sum(1).numpy()
    assert ((wide + 1) * (high + 1) >= 0.02 * 2400).all()
    assert ((wide - 1) * (high - 1) <= 0.33 * 2400).all()
    assert (((wide + 1) / (high - 1) >= 0.3) & ((wide - 1) / (high + 1) <= 3.3)).all()
    assert kstest(wide * high / 2400, "uniform", args=(0.02, 0.31)).pvalue > 1e-3
    for axis, size in ((1, 60), (2, 40)):
        shadow = erased[hit].any(axis)
        first = shadow.int().argmax(1).numpy()
        room = size - shadow.sum(1).numpy()
        assert abs((first / np.maximum(room, 1)).mean() - 0.5) < 0.05
    levels = torch.cat([image[:, mask].flatten() for image, mask in zip(done[hit], erased[hit], strict=True)])
    assert chisquare(np.bincount(levels.numpy(), minlength=256)).pvalue > 1e-3
    assert np.corrcoef(levels[:-1], levels[1:])[0, 1] == pytest.approx(0, abs=0.01)


def test_the_noise_differs_between_images():
    black = torch.zeros(50, 1, 16, 16, dtype=torch.uint8)
    done = augment(black, keys_of(50), only(erase=1.0))
    assert len({image.numpy().tobytes() for image in done}) == 50


# Purity

SETTINGS = {
    "pad": Augment(),
    "resized": Augment(crop="resized", jitter=0.4),
    "randaugment": Augment(policy="randaugment", erase=0.5),
    "trivial": Augment(policy="trivial", jitter=0.2, erase=0.25),
}


@pytest.mark.parametrize("name", SETTINGS)
@given(cut=st.integers(1, 23), channels=st.sampled_from([1, 3, 4]), order=st.permutations(range(24)))
def test_an_image_does_not_depend_on_its_batch(name, cut, channels, order):
    images, keys, settings = noise(24, channels), keys_of(24), SETTINGS[name]
    whole = augment(images, keys, settings)
    parts = [augment(images[rows], keys[rows], settings) for rows in (slice(cut), slice(cut, None))]
    assert whole.equal(torch.cat(parts))
    assert augment(images[order], keys[np.array(order)], settings).equal(whole[order])


@pytest.mark.parametrize("name", SETTINGS)
def test_draws_depend_only_on_seed_epoch_sample_and_repeat(name):
    images, keys, settings = noise(24), keys_of(24), SETTINGS[name]
    first = augment(images, keys, settings)
    torch.manual_seed(17)
    np.random.seed(17)
    assert augment(images, keys, settings).equal(first)
    for other in (
        keys_of(24, epoch=1),
        keys_of(24, seed=4),
        SampleKeys(keys.seed, keys.epoch, keys.index, keys.repeat + 1),
    ):
        changed = (augment(images, other, settings) != first).flatten(1).any(1)
        assert changed.sum() > 18


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_shapes_are_kept_and_inputs_are_not_modified(name, channels):
    images = noise(30, channels, height=9, width=7)
    before = images.clone()
    done = augment(images, keys_of(30), SETTINGS[name])
    assert images.equal(before)
    assert done.shape == images.shape
    assert done.dtype == torch.uint8
    assert not done.equal(images)


def test_non_contiguous_images_give_the_same_result():
    stored = noise(24).permute(0, 2, 3, 1).contiguous()
    for settings in SETTINGS.values():
        view = stored.permute(0, 3, 1, 2)
        assert augment(view, keys_of(24), settings).equal(augment(view.contiguous(), keys_of(24), settings))


# Settings


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (dict(crop="center"), "crop='center': expected one of 'none', 'pad', 'resized'"),
        (dict(padding=-0.1), "augment.padding=-0.1: must be in 0 … 1"),
        (dict(scale=(0.5, 0.2)), r"augment.scale=\(0.5, 0.2\): expected 0 < low ≤ high ≤ 1"),
        (dict(scale=(0.0, 1.0)), "augment.scale"),
        (dict(ratio=(0.0, 1.0)), "augment.ratio"),
        (dict(policy_magnitude=31.0), "augment.policy_magnitude=31.0: must be in 0 … 30"),
        (dict(erase=1.5), "augment.erase=1.5: must be in 0 … 1"),
        (dict(mixup=-1.0), "augment.mixup"),
        (dict(cutmix=float("nan")), "augment.cutmix"),
        (dict(repeats=0), "augment.repeats=0: must be in 1 … 1000"),
        (dict(policy_ops=2.5), "policy_ops=2.5: expected a whole number"),
    ],
    ids=str,
)
def test_invalid_settings_are_named(bad, says):
    with pytest.raises(ConfigError, match=says):
        Augment(**bad)
