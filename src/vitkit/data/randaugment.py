"""RandAugment and TrivialAugment: random operations from one table, each at its own strength.

The operations take uint8 images and one amount per image, and mean what Pillow's functions of the same names mean: the
ones on levels to the level, the ones on places by bilinear interpolation. Each runs once per batch, on the images that
drew it. What comes in from outside of an image is black, as in a padded crop.
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

STRENGTHS = 30  # both papers count strength in steps from 0 to here


def randaugment(images: Images, keys: SampleKeys, ops: int, magnitude: float) -> Images:
    """`ops` operations in a row, all of one strength (Cubuk et al. 2020).

    Strength grows with magnitude for every operation, and those that have two directions take either: in the paper's
    own code posterize and solarize grow weaker, and the enhancements pass through none.
    """
    height, width = images.shape[-2:]
    share = 150 / 331  # of the image size, as AutoAugment's 150 pixels of 331
    reach = _reach(rotate=30.0, shear=0.3, enhance=0.9, bits=4.0, across=share * width, down=share * height)
    strength = np.full(len(keys), magnitude / STRENGTHS)
    for turn in range(ops):
        images = _apply(images, keys, f"randaugment {turn}", reach, strength)
    return images


def trivial_augment(images: Images, keys: SampleKeys) -> Images:
    """One operation, of a strength drawn from all there are (Müller and Hutter 2021, the wide ranges)."""
    reach = _reach(rotate=135.0, shear=0.99, enhance=0.99, bits=6.0, across=32.0, down=32.0)
    strength = np.floor(keys.uniform("trivial strength") * (STRENGTHS + 1)) / STRENGTHS
    return _apply(images, keys, "trivial", reach, strength)


def _reach(rotate: float, shear: float, enhance: float, bits: float, across: float, down: float) -> dict[str, float]:
    """The amount of each operation at full strength; those that are not here have none."""
    return dict(
        rotate=rotate,
        shear_x=shear,
        shear_y=shear,
        translate_x=across,
        translate_y=down,
        color=enhance,
        contrast=enhance,
        brightness=enhance,
        sharpness=enhance,
        posterize=bits,
        solarize=1.0,
    )


def _apply(images: Images, keys: SampleKeys, turn: str, reach: Mapping[str, float], strength: np.ndarray) -> Images:
    choice, side = keys.uniform(turn, 2).T
    kind = (choice * len(OPERATIONS)).astype(np.int64)
    amount = np.where(side < 0.5, -strength, strength)
    order = np.argsort(kind, kind="stable")
    sizes = np.bincount(kind, minlength=len(OPERATIONS)).tolist()
    groups = torch.split(images.index_select(0, torch.from_numpy(order).to(images.device)), sizes)
    amounts = torch.split(torch.from_numpy(amount[order]).float().to(images.device), sizes)
    done = [
        OPERATIONS[name](group, signed * reach.get(name, 0.0))
        for name, group, signed in zip(OPERATIONS, groups, amounts, strict=True)
        if len(group)
    ]
    return torch.cat(done).index_select(0, torch.from_numpy(np.argsort(order)).to(images.device))


# Levels


def identity(images: Images, amount: Amounts) -> Images:
    return images


def autocontrast(images: Images, amount: Amounts) -> Images:
    """Each channel stretched to 0…255."""
    low, high = images.amin((-2, -1), keepdim=True).int(), images.amax((-2, -1), keepdim=True).int()
    stretched = 255 * (images - low) // (high - low).clamp(min=1)
    return torch.where(high > low, stretched, images).to(torch.uint8)


def equalize(images: Images, amount: Amounts) -> Images:
    """Each channel's levels spread so that about as many pixels have each."""
    flat = images.flatten(0, 1).flatten(1).long()
    channels, pixels = flat.shape
    place = torch.arange(channels, device=flat.device)[:, None] * 256
    counts = torch.bincount((flat + place).flatten(), minlength=channels * 256).view(channels, 256)
    brightest = counts.gather(1, flat.amax(1, keepdim=True))
    step = (pixels - brightest) // 255
    table = ((counts.cumsum(1) - counts + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table.gather(1, flat), flat).to(torch.uint8).view_as(images)


def solarize(images: Images, amount: Amounts) -> Images:
    """Levels in the upper `amount` of the range are inverted."""
    return torch.where(images >= _each(256 * (1 - amount.abs())), 255 - images, images)


def posterize(images: Images, amount: Amounts) -> Images:
    """The lowest `amount` bits are dropped."""
    return images & _each(256 - 2 ** amount.abs().round()).to(torch.uint8)


def brightness(images: Images, amount: Amounts) -> Images:
    return _enhance(images, torch.zeros_like(images), amount)


def contrast(images: Images, amount: Amounts) -> Images:
    grey = _grey(images) if images.shape[1] == 3 else images
    mean = (2 * grey.sum((1, 2, 3), keepdim=True) + grey[0].numel()) // (2 * grey[0].numel())  # rounded
    return _enhance(images, mean, amount)


def color(images: Images, amount: Amounts) -> Images:
    """Saturation; an image without three channels has none."""
    return _enhance(images, _grey(images), amount) if images.shape[1] == 3 else images


def sharpness(images: Images, amount: Amounts) -> Images:
    """Away from, or towards, an image smoothed by its eight neighbours; the outermost pixels stay."""
    levels = images.short()
    rows = levels[..., :-2] + levels[..., 1:-1] + levels[..., 2:] if images.shape[-1] > 2 else levels[..., :0]
    nine = rows[..., :-2, :] + rows[..., 1:-1, :] + rows[..., 2:, :] if images.shape[-2] > 2 else rows[..., :0, :]
    smooth = levels.clone()
    smooth[..., 1:-1, 1:-1] = (nine + 4 * levels[..., 1:-1, 1:-1] + 6) // 13
    return _enhance(images, smooth, amount)


def _enhance(images: Tensor, dull: Tensor, amount: Amounts) -> Images:
    """`amount` -1: the dull version; 0: the image; above: beyond it."""
    dull = dull.float()
    return _to_levels(dull + _each(1 + amount) * (images - dull))


def _grey(images: Tensor) -> Tensor:
    """The luma of ITU-R 601, in 16-bit fixed point."""
    red, green, blue = images.int().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16)[:, None]


def _to_levels(values: Tensor) -> Images:
    """Cut off below 0, above 255 and after the point, as Pillow does."""
    return values.clamp(0, 255).to(torch.uint8)


def _each(amount: Amounts) -> Tensor:
    return amount[:, None, None, None]


# Places


def rotate(images: Images, amount: Amounts) -> Images:
    """By `amount` degrees about the centre, to the left."""
    height, width = images.shape[-2:]
    cos, sin = (amount * (torch.pi / 180)).cos(), (amount * (torch.pi / 180)).sin()
    x = width / 2 - cos * width / 2 + sin * height / 2
    y = height / 2 - sin * width / 2 - cos * height / 2
    return warp(images, torch.stack([cos, -sin, x, sin, cos, y], dim=1))


def shear_x(images: Images, amount: Amounts) -> Images:
    """The further down, the further to the left; the top edge stays."""
    return warp(images, _matrix(amount, b=amount))


def shear_y(images: Images, amount: Amounts) -> Images:
    return warp(images, _matrix(amount, d=amount))


def translate_x(images: Images, amount: Amounts) -> Images:
    """By whole pixels, so that nothing is blurred."""
    return warp(images, _matrix(amount, c=amount.round()))


def translate_y(images: Images, amount: Amounts) -> Images:
    return warp(images, _matrix(amount, f=amount.round()))


def _matrix(like: Amounts, **entries: Amounts) -> Float[Tensor, "b 6"]:
    """Nothing moves, but for the entries given; letters as in Pillow."""
    one, zero = torch.ones_like(like), torch.zeros_like(like)
    entries = dict(a=one, b=zero, c=zero, d=zero, e=one, f=zero) | entries
    return torch.stack([entries[letter] for letter in "abcdef"], dim=1)


def warp(images: Images, matrix: Float[Tensor, "b 6"], outside: str = "zeros") -> Images:
    """The pixel at (x, y) is what the image has at (ax + by + c, dx + ey + f); centres of pixels are at halves."""
    height, width = images.shape[-2:]
    x = torch.arange(width, device=images.device) + 0.5
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
