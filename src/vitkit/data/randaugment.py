"""RandAugment and TrivialAugment: random operations from one table, each with its own strength.

The operations take uint8 images and one amount per image, and match Pillow's functions of the same names. Colour
operations are bit-exact; geometric ones use bilinear interpolation. Each runs once per batch, on the images that drew
it. Pixels from outside of an image are black, as in a padded crop.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from vitkit.data.rng import SampleKeys

Images = UInt8[Tensor, "b c h w"]
Amounts = Float[Tensor, "b"]

MAX_MAGNITUDE = 30  # both papers measure strength in steps from 0 to 30


def randaugment(images: Images, keys: SampleKeys, ops: int, magnitude: float) -> Images:
    """Apply `ops` random operations in sequence, all of one magnitude (Cubuk et al. 2020).

    Every operation grows stronger with the magnitude, in a random direction if it has two. In the paper's code,
    posterize and solarize grow weaker, and the enhancements have no effect at a medium magnitude.
    """
    height, width = images.shape[-2:]
    share = 150 / 331  # of the image size: AutoAugment shifts by up to 150 of 331 pixels
    max_amounts = _max_amounts(
        rotate=30.0, shear=0.3, enhance=0.9, bits=4.0, shift_x=share * width, shift_y=share * height
    )
    strength = np.full(len(keys), magnitude / MAX_MAGNITUDE)
    for i in range(ops):
        images = _apply(images, keys, f"randaugment {i}", max_amounts, strength)
    return images


def trivial_augment(images: Images, keys: SampleKeys) -> Images:
    """Apply one random operation of random strength (Müller and Hutter 2021, the wide ranges)."""
    max_amounts = _max_amounts(rotate=135.0, shear=0.99, enhance=0.99, bits=6.0, shift_x=32.0, shift_y=32.0)
    strength = np.floor(keys.uniform("trivial strength") * (MAX_MAGNITUDE + 1)) / MAX_MAGNITUDE
    return _apply(images, keys, "trivial", max_amounts, strength)


def _max_amounts(
    rotate: float, shear: float, enhance: float, bits: float, shift_x: float, shift_y: float
) -> dict[str, float]:
    """Return the amount of each operation at full strength. The others have no amount."""
    enhancements = dict.fromkeys(("color", "contrast", "brightness", "sharpness"), enhance)
    moves = dict(rotate=rotate, shear_x=shear, shear_y=shear, translate_x=shift_x, translate_y=shift_y)
    return {**enhancements, **moves, "posterize": bits, "solarize": 1.0}


def _apply(
    images: Images, keys: SampleKeys, purpose: str, max_amounts: Mapping[str, float], strength: np.ndarray
) -> Images:
    choice, side = keys.uniform(purpose, 2).T
    kind = (choice * len(OPERATIONS)).astype(np.int64)
    amount = np.where(side < 0.5, -strength, strength)
    order = np.argsort(kind, kind="stable")
    sizes = np.bincount(kind, minlength=len(OPERATIONS)).tolist()
    groups = torch.split(images.index_select(0, torch.from_numpy(order).to(images.device)), sizes)
    amounts = torch.split(torch.from_numpy(amount[order]).float().to(images.device), sizes)
    done = [
        OPERATIONS[name](group, signed * max_amounts.get(name, 0.0))
        for name, group, signed in zip(OPERATIONS, groups, amounts, strict=True)
        if len(group)
    ]
    return torch.cat(done).index_select(0, torch.from_numpy(np.argsort(order)).to(images.device))


# Colour operations


def identity(images: Images, amount: Amounts) -> Images:
    return images


def autocontrast(images: Images, amount: Amounts) -> Images:
    """Stretch each channel to 0…255."""
    low, high = images.amin((-2, -1), keepdim=True).int(), images.amax((-2, -1), keepdim=True).int()
    stretched = 255 * (images - low) // (high - low).clamp(min=1)
    return torch.where(high > low, stretched, images).to(torch.uint8)


def equalize(images: Images, amount: Amounts) -> Images:
    """Equalize the histogram of each channel."""
    flat = images.flatten(0, 1).flatten(1).long()
    channels, pixels = flat.shape
    offset = torch.arange(channels, device=flat.device)[:, None] * 256
    counts = torch.bincount((flat + offset).flatten(), minlength=channels * 256).view(channels, 256)
    brightest = counts.gather(1, flat.amax(1, keepdim=True))
    step = (pixels - brightest) // 255
    table = ((counts.cumsum(1) - counts + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table.gather(1, flat), flat).to(torch.uint8).view_as(images)


def solarize(images: Images, amount: Amounts) -> Images:
    """Invert the levels in the upper `amount` of the range."""
    return torch.where(images >= _per_image(256 * (1 - amount.abs())), 255 - images, images)


def posterize(images: Images, amount: Amounts) -> Images:
    """Clear the lowest `amount` bits."""
    return images & _per_image(256 - 2 ** amount.abs().round()).to(torch.uint8)


def brightness(images: Images, amount: Amounts) -> Images:
    return _enhance(images, torch.zeros_like(images), amount)


def contrast(images: Images, amount: Amounts) -> Images:
    grey = _grey(images) if images.shape[1] == 3 else images
    mean = (2 * grey.sum((1, 2, 3), keepdim=True) + grey[0].numel()) // (2 * grey[0].numel())  # rounded
    return _enhance(images, mean, amount)


def color(images: Images, amount: Amounts) -> Images:
    """Change the saturation. Images without three channels are returned as they are."""
    return _enhance(images, _grey(images), amount) if images.shape[1] == 3 else images


def sharpness(images: Images, amount: Amounts) -> Images:
    """Sharpen or smooth with a 3×3 kernel. The outermost pixels are kept."""
    levels = images.short()
    rows = levels[..., :-2] + levels[..., 1:-1] + levels[..., 2:] if images.shape[-1] > 2 else levels[..., :0]
    nine = rows[..., :-2, :] + rows[..., 1:-1, :] + rows[..., 2:, :] if images.shape[-2] > 2 else rows[..., :0, :]
    smooth = levels.clone()
    smooth[..., 1:-1, 1:-1] = (nine + 4 * levels[..., 1:-1, 1:-1] + 6) // 13
    return _enhance(images, smooth, amount)


def _enhance(images: Tensor, degenerate: Tensor, amount: Amounts) -> Images:
    """Extrapolate from a degenerate image. `amount` -1: the degenerate image; 0: the original; above: enhanced."""
    degenerate = degenerate.float()
    return _to_uint8(degenerate + _per_image(1 + amount) * (images - degenerate))


def _grey(images: Tensor) -> Tensor:
    """Return the luma of ITU-R 601, in 16-bit fixed point."""
    red, green, blue = images.int().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16)[:, None]


def _to_uint8(values: Tensor) -> Images:
    """Clip and truncate, as Pillow does."""
    return values.clamp(0, 255).to(torch.uint8)


def _per_image(amount: Amounts) -> Tensor:
    return amount[:, None, None, None]


# Geometric operations


def rotate(images: Images, amount: Amounts) -> Images:
    """Rotate by `amount` degrees about the centre, counter-clockwise."""
    height, width = images.shape[-2:]
    cos, sin = (amount * (torch.pi / 180)).cos(), (amount * (torch.pi / 180)).sin()
    x = width / 2 - cos * width / 2 + sin * height / 2
    y = height / 2 - sin * width / 2 - cos * height / 2
    return warp(images, torch.stack([cos, -sin, x, sin, cos, y], dim=1))


def shear_x(images: Images, amount: Amounts) -> Images:
    """Shift each row to the left in proportion to its distance from the top."""
    return warp(images, _affine(amount, b=amount))


def shear_y(images: Images, amount: Amounts) -> Images:
    return warp(images, _affine(amount, d=amount))


def translate_x(images: Images, amount: Amounts) -> Images:
    """Shift by whole pixels, so that nothing is blurred."""
    return warp(images, _affine(amount, c=amount.round()))


def translate_y(images: Images, amount: Amounts) -> Images:
    return warp(images, _affine(amount, f=amount.round()))


def _affine(like: Amounts, **entries: Amounts) -> Float[Tensor, "b 6"]:
    """Return the identity transform with the given entries replaced. The letters are those of Pillow."""
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    entries = dict(a=one, b=zero, c=zero, d=zero, e=one, f=zero) | entries
    return torch.stack([entries[letter] for letter in "abcdef"], dim=1)


def warp(images: Images, matrix: Float[Tensor, "b 6"], outside: str = "zeros") -> Images:
    """Apply affine transforms: the result at (x, y) is the image at (ax + by + c, dx + ey + f)."""
    height, width = images.shape[-2:]
    x = torch.arange(width, device=images.device) + 0.5  # centres of the pixels
    y = torch.arange(height, device=images.device)[:, None] + 0.5
    a, b, c, d, e, f = (column[:, None, None] for column in matrix.unbind(1))
    grid = torch.stack([(a * x + b * y + c) * (2 / width) - 1, (d * x + e * y + f) * (2 / height) - 1], dim=-1)
    moved = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode=outside, align_corners=False)
    return moved.round_().to(torch.uint8)


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    operation.__name__: operation
    for operation in (
        *(identity, autocontrast, equalize, rotate, solarize, color, posterize),
        *(contrast, brightness, sharpness, shear_x, shear_y, translate_x, translate_y),
    )
}
