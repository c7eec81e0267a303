"""Learning rate and image size as pure functions of a run's progress, from 0 at its first step to 1 at its end."""

import math

from vitkit.errors import ConfigError
from vitkit.model.config import Pair
from vitkit.training.recipe import Schedule


def lr_factor(progress: float, s: Schedule) -> float:
    """Return the learning rate as a fraction of its maximum: linear warm-up, then the shape of the schedule."""
    if progress < s.warmup:
        return (progress + 1e-9) / s.warmup
    elapsed = (progress - s.warmup) / max(1 - s.warmup, 1e-9)
    return s.floor + (1 - s.floor) * _decay(min(elapsed, 1.0), s)


def _decay(t: float, s: Schedule) -> float:
    match s.shape:
        case "cosine":
            return (1 + math.cos(math.pi * t)) / 2
        case "linear":
            return 1 - t
        case "wsd":  # warm-up, stable, decay
            return min(1.0, (1 - t) / s.decay) if s.decay else 1.0
        case "constant":
            return 1.0


def check_sizes(s: Schedule, full: Pair, patch: Pair) -> None:
    """Raise before the run if an image size of the schedule does not fit: it may first be used after hours."""
    for start, size in s.sizes:
        found = image_size(start, s, full, patch)
        if size <= 0 or any(side % p for side, p in zip(found, patch, strict=True)):
            raise ConfigError(f"schedule.sizes: {size:g} (from {start:g}) must be a multiple of the patch size {patch}")


def image_size(progress: float, s: Schedule, full: Pair, patch: Pair) -> Pair:
    """Return the (height, width) at this progress. Sizes up to 1 are fractions of `full`, rounded to patches."""
    sizes = [size for start, size in s.sizes if progress >= start]
    if not sizes:
        return full
    if sizes[-1] > 1:
        return int(sizes[-1]), int(sizes[-1])
    height, width = (max(1, round(sizes[-1] * f / p)) * p for f, p in zip(full, patch, strict=True))
    return height, width
