"""Real photographs that are always at hand, for checking an export where no data is given.

Noise would not do: a model is confident on nothing in it, and a graph that is wrong where photographs are bright, dark
or detailed could pass. matplotlib, a dependency of vitkit, ships a photograph; scikit-learn, where installed, two more.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

_PLACES = (
    ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
    ("sklearn", "datasets/images/china.jpg"),
    ("sklearn", "datasets/images/flower.jpg"),
)


def photographs() -> list[Path]:
    found = []
    for package, place in _PLACES:
        spec = find_spec(package)  # finds the folder without importing the package
        if spec is not None and spec.origin is not None and (path := Path(spec.origin).parent / place).is_file():
            found.append(path)
    return found


def sample_images(count: int = 32) -> list[np.ndarray]:
    """Parts of the photographs: windows of falling size at fixed draws, every second one mirrored."""
    pictures = [np.asarray(Image.open(path).convert("RGB")) for path in photographs()]
    draws = np.random.default_rng(0)
    parts = []
    for i in range(count):
        picture = pictures[i % len(pictures)]
        side = int(min(picture.shape[:2]) * (1.0 - 0.7 * i / count))
        top, left = (int(draws.integers(0, length - side + 1)) for length in picture.shape[:2])
        part = picture[top : top + side, left : left + side]
        parts.append(np.ascontiguousarray(part[:, ::-1] if i % 2 else part))
    return parts
