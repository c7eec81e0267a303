"""Pure functions of the progress of a run, from 0 at its first step to 1 at its end."""

import math

from vitkit.errors import ConfigError
from vitkit.model.config import Pair
from vitkit.training.recipe import Schedule


def rate(progress: float, s: Schedule) -> float:
    """The learning rate as a share of the highest one: up linearly, then along the shape."""
    if progress < s.warmup:
        return (progress + 1e-9) / s.warmup
    left = (progress - s.warmup) / max(1 - s.warmup, 1e-9)
    return s.floor + (1 - s.floor) * _fall(min(left, 1.0), s)


def _fall(t: float, s: Schedule) -> float:
    match s.shape:
        case "cosine":
            return (1 + math.cos(math.pi * t)) / 2
        case "linear":
            return 1 - t
        case "wsd":  # warm-up, stable, decay
            return min(1.0, (1 - t) / s.decay) if s.decay else 1.0
        case "constant":
            return 1.0


def ema_decay(step: int, decay: float) -> float:
    """Small at first, so that the average does not remember the random start."""
    return min(decay, (1 + step) / (10 + step))


def check_sizes(s: Schedule, full: Pair, patch: Pair) -> None:
    """Before the run, for the step at which such a size begins may be hours away."""
    for start, size in s.sizes:
        found = image_size(start, s, full, patch)
        if size <= 0 or any(side % p for side, p in zip(found, patch, strict=True)):
            raise ConfigError(f"schedule.sizes: {size:g} from {start:g} on must be a multiple of the patch {patch}")


def image_size(progress: float, s: Schedule, full: Pair, patch: Pair) -> Pair:
    sizes = [size for start, size in s.sizes if progress >= start]
    if not sizes:
        return full
    if sizes[-1] > 1:
        return int(sizes[-1]), int(sizes[-1])
    down, across = (max(1, round(sizes[-1] * f / p)) * p for f, p in zip(full, patch, strict=True))
    return down, across
