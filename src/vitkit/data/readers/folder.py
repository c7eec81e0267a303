"""Read a folder of class folders."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from vitkit.data.dataset import SPLIT_NAMES, Dataset, FileImages
from vitkit.data.decode import SUFFIXES
from vitkit.data.split import RawDataset, build_dataset
from vitkit.errors import DataError

NO_CLASSES = ("__pycache__", "__MACOSX")  # folders that Python and macOS leave behind
PHONE_FORMATS = (".heic", ".heif", ".avif")  # of photographs that Pillow does not read by itself


def read_folder(path: Path) -> Dataset:
    """Read CLASS/**/IMAGE, or SPLIT/CLASS/**/IMAGE if a folder is named train, val (valid, validation) or test."""
    roots = {f: SPLIT_NAMES[f.name.lower()] for f in subfolders(path) if f.name.lower() in SPLIT_NAMES}
    if not any(subfolders(f) for f in roots):  # a folder `train` that holds images is a class of locomotives
        roots = {path: "train"}
    rows: list[tuple[str, str, str]] = []  # (path, class, split)
    notes: list[str] = []
    for root, split in roots.items():
        for folder in subfolders(root):
            files = sorted(_files_below(folder), key=str)
            images = [f for f in files if f.suffix.lower() in SUFFIXES]
            others = Counter(f.suffix or f.name for f in files if f.suffix.lower() not in SUFFIXES)
            if others:
                hint = "; export them as JPEG" if any(suffix.lower() in PHONE_FORMATS for suffix in others) else ""
                notes.append(f"{folder}: ignored {others.total()} files that are not images ({shorten(others)}){hint}")
            if not images:
                notes.append(f"{folder}: ignored, it has no images")
            rows += [(str(image), folder.name, split) for image in images]
        if loose := sum(f.is_file() and f.suffix.lower() in SUFFIXES for f in root.iterdir()):
            notes.append(f"{root}: ignored {loose} images that are in no class folder")
    if path not in roots and (ignored := [f.name for f in subfolders(path) if f not in roots]):
        notes.append(f"{path}: ignored the folders next to the splits ({shorten(ignored)})")
    if not rows:
        if any(f.suffix.lower() in SUFFIXES for f in path.iterdir()):
            raise DataError(
                f"{path}: its images are in no class folder; name the folder above it, or sort them as CLASS/IMAGE"
            )
        raise DataError(
            f"{path}: no images in class folders; expected CLASS/IMAGE or train/CLASS/IMAGE, with a suffix of "
            + ", ".join(sorted(SUFFIXES))
        )
    paths, labels, splits = zip(*rows, strict=True)
    return build_dataset(RawDataset(path.resolve().name, FileImages(paths), labels, splits, notes=notes))


def subfolders(path: Path) -> list[Path]:
    return sorted(f for f in path.iterdir() if f.is_dir() and not f.name.startswith(".") and f.name not in NO_CLASSES)


def shorten(names: Iterable[str], most: int = 3) -> str:
    """Join the first `most` names; "…" stands for the rest."""
    first = list(islice(names, most + 1))
    return ", ".join(first[:most]) + (", …" if len(first) > most else "")


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield all files, following links; a link to a folder above is followed once."""
    seen = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(root)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        yield from (Path(root, name) for name in names if not name.startswith("."))
