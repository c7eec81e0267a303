"""Sample images for the page: a folder, digits for a digits model, else photographs of installed packages."""

import io
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from vitkit.data.decode import SUFFIXES
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError
from vitkit.export.sample_photographs import sample_photographs
from vitkit.serve.decoder_pool import check_format
from vitkit.serve.errors import APIError

MAX_SAMPLES = 12
_MAX_BYTES = 8 * 2**20
_TYPES = {b"\xff\xd8": "image/jpeg", b"\x89P": "image/png", b"RI": "image/webp", b"GI": "image/gif", b"BM": "image/bmp"}


def load_samples(folder: str | None, preprocess: Iterable[Preprocess]) -> dict[str, bytes]:
    """Return name → file. All files are read at start-up, so a client can never name a path."""
    if folder is not None:
        found = _read(sorted(p for p in Path(folder).glob("*") if p.suffix.lower() in SUFFIXES))
        if not found:
            raise DataError(f"--samples {folder}: no images that a browser can show; use JPEG or PNG files")
        return found
    if all(p.channels == 1 and max(p.size) <= 32 for p in preprocess) and find_spec("sklearn"):
        return _digits()
    return _read(sample_photographs())


def content_type(content: bytes) -> str:
    return _TYPES.get(content[:2], "application/octet-stream")


def _read(paths: Iterable[Path]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in paths:
        if len(found) == MAX_SAMPLES or not path.is_file() or path.stat().st_size > _MAX_BYTES:
            continue
        content = path.read_bytes()
        try:
            check_format(content)
        except APIError:
            continue
        if content[:2] in _TYPES:
            found[path.stem if path.stem not in found else path.name] = content
    return found


def _digits(count: int = 6) -> dict[str, bytes]:
    """Return digits from the end of scikit-learn's data set, which `vitkit train digits` uses as the test split."""
    from sklearn.datasets import load_digits

    data = load_digits()
    found = {}
    for i in range(count):
        pixels = np.rint(data.images[-1 - 7 * i] * (255 / 16)).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        found[f"{data.target[-1 - 7 * i]} ({i + 1})"] = file.getvalue()
    return found
