"""Photographs that installed packages contain, for comparisons that need no labels."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from vitkit.data.preprocess import Preprocess

# Photographs in installed packages: matplotlib is a dependency of vitkit, scikit-learn is optional.
_PHOTOGRAPHS = (
    ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
    ("sklearn", "datasets/images/china.jpg"),
    ("sklearn", "datasets/images/flower.jpg"),
)


def sample_photographs() -> list[Path]:
    """Return photographs that installed packages contain. On noise, models would never be confident."""
    found = []
    for package, place in _PHOTOGRAPHS:
        spec = find_spec(package)  # finds the folder without importing the package
        if spec is not None and spec.origin is not None and (path := Path(spec.origin).parent / place).is_file():
            found.append(path)
    return found


def sample_crops(count: int = 32) -> list[np.ndarray]:
    """Return square crops of the sample photographs, at fixed places, of falling size, every second one mirrored."""
    photographs = [np.asarray(Image.open(path).convert("RGB")) for path in sample_photographs()]
    rng = np.random.default_rng(0)
    crops = []
    for i in range(count):
        photograph = photographs[i % len(photographs)]
        side = int(min(photograph.shape[:2]) * (1.0 - 0.7 * i / count))
        top, left = (int(rng.integers(0, length - side + 1)) for length in photograph.shape[:2])
        crop = photograph[top : top + side, left : left + side]
        crops.append(np.ascontiguousarray(crop[:, ::-1] if i % 2 else crop))
    return crops


def sample_pixels(preprocess: Preprocess) -> np.ndarray:
    """Return preprocessed crops, (N, H, W, C) uint8. They suffice for a comparison, not for calibration."""
    images = sample_crops()
    if preprocess.channels not in (1, 3):  # repeat the three channels as often as needed
        images = [np.resize(image.transpose(2, 0, 1), (preprocess.channels, *image.shape[:2])).transpose(1, 2, 0)
                  for image in images]  # fmt: skip
    return np.stack([preprocess.array(image) for image in images])
