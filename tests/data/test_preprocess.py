"""Preprocessing: geometry, values, and the mapping back to the original image."""

import io
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vitkit.data.preprocess import Preprocess, channel_mean_std
from vitkit.errors import ConfigError, CorruptImageError, UnknownNameError

FITS = ["crop", "squash", "pad"]


def noise(width: int, height: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def test_json_round_trip() -> None:
    preprocess = Preprocess(size=(96, 160), fit="pad", fill=(1, 2, 3), mean=(0.1, 0.2, 0.3), std=(1.0, 2.0, 3.0))
    assert Preprocess.from_dict(json.loads(json.dumps(preprocess.to_dict()))) == preprocess


def test_a_range_is_stored_only_if_it_is_set() -> None:
    assert "range" not in Preprocess().to_dict()  # older versions read the file
    twelve = Preprocess(range=(0, 4095))
    assert twelve.to_dict()["range"] == [0, 4095]  # and refuse this one
    assert Preprocess.from_dict(json.loads(json.dumps(twelve.to_dict()))) == twelve
    assert twelve.replace(size=32).range == (0, 4095)


def test_one_number_is_repeated_for_all_channels_and_sides() -> None:
    grey = Preprocess(size=28, channels=1)
    assert (grey.size, grey.mean, grey.std) == ((28, 28), (0.5,), (0.5,))
    assert Preprocess(mean=0.4).mean == (0.4, 0.4, 0.4)  # type: ignore[arg-type]  # what JSON and shells may give


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("size", 0, "size="),
        ("size", (1, 2, 3), "size="),
        ("fit", "stretch", "fit='stretch': expected one of 'crop'"),
        ("interpolation", "bicubik", "unknown interpolation 'bicubik'; did you mean 'bicubic'"),
        ("crop_fraction", 1.5, "crop_fraction=1.5"),
        ("mean", (0.1, 0.2), "mean=.*one per channel"),
        ("std", (0.0, 1.0, 1.0), "std above 0"),
        ("fill", (0, 0, 256), "from 0 to 255"),
        ("channels", 0, "at least 1"),
        ("range", (5, 5), "range=.*the smaller one first"),
        ("range", (0, float("inf")), "range=.*finite"),
        ("range", 4095, "range="),
        ("siz", 3, "unknown Preprocess key 'siz'; did you mean 'size'"),
    ],
)
def test_wrong_settings_are_errors_that_name_them(key: str, value: object, message: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        Preprocess.from_dict({key: value})


@pytest.mark.parametrize("fit", FITS)
def test_an_image_of_the_right_size_is_unchanged(fit: str) -> None:
    pixels = noise(32, 32)
    assert np.array_equal(Preprocess(size=32, crop_fraction=1.0, fit=fit)(pixels).permute(1, 2, 0), pixels)  # type: ignore[arg-type]


def test_crop_takes_the_centre() -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 200
    assert Preprocess(size=10, crop_fraction=1.0)(pixels).unique().tolist() == [200]


def test_squash_keeps_everything_and_pad_adds_the_fill() -> None:
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 15:] = 200
    squashed = Preprocess(size=30, crop_fraction=1.0, fit="squash", interpolation="nearest")(pixels)
    assert (squashed[:, :, 15:] == 200).all()
    assert (squashed[:, :, :15] == 0).all()
    padded = Preprocess(size=30, crop_fraction=1.0, fit="pad", fill=(1, 2, 3))(pixels)
    assert (padded[:, 10:20].permute(1, 2, 0).numpy() == pixels).all()
    assert padded[:, 0, 0].tolist() == padded[:, 29, 29].tolist() == [1, 2, 3]


def test_the_default_fill_is_zero_after_normalization() -> None:
    preprocess = Preprocess(size=30, crop_fraction=1.0, fit="pad", mean=(0.2, 0.4, 0.6))
    edge = preprocess.normalize(preprocess(noise(30, 10)))[:, 0, 0]
    assert edge.abs().max() < 0.01


def test_downscaling_is_antialiased() -> None:
    stripes = np.zeros((64, 64, 3), np.uint8)
    stripes[:, ::2] = 255
    small = Preprocess(size=16, crop_fraction=1.0)(stripes)
    assert (small.float() - 127.5).abs().max() < 20  # without a filter: all black or all white


@given(
    width=st.integers(1, 90), height=st.integers(1, 90), size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    fit=st.sampled_from(FITS), fraction=st.floats(0.3, 1.0),
)  # fmt: skip
def test_the_output_always_has_the_requested_size(
    width: int, height: int, size: tuple[int, int], fit: str, fraction: float
) -> None:
    preprocess = Preprocess(size=size, fit=fit, crop_fraction=fraction)  # type: ignore[arg-type]
    tensor = preprocess(noise(width, height))
    assert tensor.shape == (3, *size)
    assert tensor.dtype == torch.uint8
    left, top, right, bottom = preprocess.crop_box((height, width))
    slack = 1e-6
    if fit != "pad":
        assert -slack <= left < right <= width + slack
        assert -slack <= top < bottom <= height + slack


@given(
    width=st.integers(60, 200), height=st.integers(60, 200), fit=st.sampled_from(FITS),
    fraction=st.sampled_from([0.6, 0.875, 1.0]),
)  # fmt: skip
def test_the_crop_box_is_the_part_that_the_model_receives(width: int, height: int, fit: str, fraction: float) -> None:
    """The values of a ramp are its coordinates, so the output shows the position of the crop in the original."""
    preprocess = Preprocess(size=48, fit=fit, crop_fraction=fraction, interpolation="bilinear")  # type: ignore[arg-type]
    left, top, right, bottom = preprocess.crop_box((height, width))
    y, x = np.mgrid[0:height, 0:width]
    ramp = np.stack([x, y, 0 * x], -1).astype(np.uint8)
    seen = preprocess(ramp).float()
    for channel, (start, end), length in ((0, (left, right), width), (1, (top, bottom), height)):
        line = seen[channel, 24, :] if channel == 0 else seen[channel, :, 24]
        centres = start + (torch.arange(48) + 0.5) * (end - start) / 48 - 0.5
        step = (end - start) / 48  # near the edge of the image the filter leans inwards, over the margin there is none
        inner = (centres > step) & (centres < length - 1 - step)
        assert inner.any()
        assert (line - centres)[inner].abs().max() <= 1.0


def test_channels_that_no_image_format_has() -> None:
    pixels = noise(50, 40, 5)
    many = Preprocess(size=32, channels=5, mean=0.5, std=0.25)  # type: ignore[arg-type]
    one = Preprocess(size=32, channels=1)
    for c in range(5):
        assert torch.equal(many(pixels)[c], one(pixels[..., c])[0])
    with pytest.raises(CorruptImageError, match=r"is not a uint8 array \(H, W, 5\)"):
        many(noise(50, 40, 3))


def test_colour_and_grey_follow_the_channels() -> None:
    grey = noise(32, 32, 1)
    assert (Preprocess(size=32, crop_fraction=1.0)(grey) == torch.from_numpy(grey[..., 0])).all()
    assert Preprocess(size=32, channels=1)(noise(40, 40)).shape == (1, 32, 32)


def test_batch_and_normalize_do_what_one_image_does() -> None:
    preprocess = Preprocess(size=16, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    images = [noise(20, 30), noise(33, 17)]
    batch = preprocess.batch(images)
    assert batch.shape == (2, 3, 16, 16)
    floats = preprocess.normalize(batch)
    assert floats.dtype == torch.float32
    assert torch.equal(floats[1], preprocess.normalize(preprocess(images[1])))
    expected = (batch[0, 2, 3, 4].item() / 255 - 0.3) / 0.7
    assert floats[0, 2, 3, 4].item() == pytest.approx(expected, abs=1e-6)
    assert torch.equal(preprocess.denormalize(floats), batch)


def test_random_resized_crop_crops_flips_and_resizes() -> None:
    pixels = noise(40, 20)
    image, preprocess = Image.fromarray(pixels), Preprocess(size=10)
    assert np.array_equal(preprocess.random_resized_crop(image, (0.25, 0.5, 0.5, 1.0)), pixels[10:20, 10:20])
    whole = (0.0, 0.0, 1.0, 1.0)
    straight, flipped = (preprocess.random_resized_crop(image, whole, flip) for flip in (False, True))
    assert np.array_equal(straight[:, ::-1], flipped)
    assert preprocess.random_resized_crop(image.convert("L"), whole).shape == (10, 10, 1)


def test_encoded_bytes_and_arrays_give_the_same_pixels() -> None:
    pixels, file = noise(50, 70), io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    assert torch.equal(Preprocess(size=32)(file.getvalue()), Preprocess(size=32)(pixels))


def test_the_name_of_a_bad_image_is_in_the_error() -> None:
    with pytest.raises(CorruptImageError, match=r"cat\.jpg: the file is empty"):
        Preprocess()(b"", "cat.jpg")


def test_channel_mean_and_std_are_exact() -> None:
    pixels = np.stack([noise(16, 16) for _ in range(4)])
    mean, std = channel_mean_std(pixels)
    assert mean == pytest.approx((pixels / 255).mean((0, 1, 2)).tolist(), abs=1e-12)
    assert std == pytest.approx((pixels / 255).std((0, 1, 2)).tolist(), abs=1e-12)
    assert len(channel_mean_std(pixels[..., 0])[0]) == 1
