"""Fingerprints depend on image content, class and split, and on nothing else."""

from pathlib import Path

import numpy as np
from PIL import Image

from tests.data.small_data import (
    ROWS,
    columns_of,
    picture,
    save_npz,
    write_folder,
    write_parquet,
)
from vitkit.data.dataset import FileImages
from vitkit.data.fingerprint import find_images, hash_content, image_keys
from vitkit.data.open import open_data


def test_fingerprint_depends_on_content_class_and_split_but_not_on_names(tmp_path: Path) -> None:
    def of(rows: list[tuple[str, str, bytes]], name: str) -> str:
        return open_data(write_parquet(tmp_path / f"{name}.parquet", columns_of(rows))).fingerprint

    plain = of(ROWS, "plain")
    assert of(ROWS[::-1], "order") == plain
    split, label, content = ROWS[0]
    swapped = [(s, {"ant": "bee", "bee": "ant"}.get(c, c), b) if i in (0, 10) else (s, c, b)
               for i, (s, c, b) in enumerate(ROWS)]  # fmt: skip
    assert [swapped[0][1], swapped[10][1]] == ["bee", "ant"]
    assert of(swapped, "swapped") != plain
    assert of([({"train": "test"}.get(s, s), c, b) for s, c, b in ROWS], "moved") != plain
    changes = {
        "content": (split, label, picture(999)),
        "class": (split, "bee", content),
        "split": ("val", label, content),
    }
    assert len({plain, *(of([row, *ROWS[1:]], name) for name, row in changes.items())}) == 4


def test_a_large_file_is_hashed_by_its_ends(tmp_path: Path) -> None:
    """The file and its bytes in a table have one hash, and a byte at either end changes it."""
    content = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()
    variants = [content, b"x" + content[1:], content[:-1] + b"x", content + b"x"]
    marks = set()
    for i, variant in enumerate(variants):
        rows = [("train", "a", variant), ("train", "b", picture(0))]
        packed = open_data(write_parquet(tmp_path / f"{i}.parquet", columns_of(rows)), val_fraction=0)
        unpacked = open_data(write_folder(tmp_path / str(i), rows), val_fraction=0)
        assert packed.fingerprint == unpacked.fingerprint
        marks.add(packed.fingerprint)
    assert len(marks) == 4


def test_uncompressed_files_are_hashed_completely(tmp_path: Path) -> None:
    """Scans with an even margin begin and end alike."""
    (tmp_path / "a").mkdir()
    for kind in ("bmp", "tif"):
        for i in range(2):
            pixels = np.zeros((400, 400, 3), np.uint8)
            pixels[180:220, 180:220] = i
            Image.fromarray(pixels).save(tmp_path / "a" / f"{i}.{kind}")
    paths = sorted(map(str, (tmp_path / "a").iterdir()))
    from_files, from_bytes = FileImages(paths), [Path(path).read_bytes() for path in paths]
    stamps = [from_files.content_hash(i) for i in range(4)]
    assert len(set(stamps)) == 4
    assert stamps == [hash_content(content) for content in from_bytes]


def test_fingerprint_of_arrays_does_not_depend_on_order(tmp_path: Path) -> None:
    images, labels = np.random.default_rng(0).integers(0, 256, (20, 5, 4), dtype=np.uint8), np.arange(20) % 2
    marks = set()
    for i, order in enumerate((np.arange(20), np.arange(20)[::-1])):
        path = save_npz(tmp_path / f"{i}.npz", train_images=images[order], train_labels=labels[order])
        marks.add(open_data(path, val_fraction=0).fingerprint)
    assert len(marks) == 1


def test_images_are_found_by_keys_of_their_hashes() -> None:
    hashes = np.random.default_rng(0).integers(0, 256, (100, 16), dtype=np.uint8)
    keys = image_keys(np.concatenate([hashes[::3], hashes[:1]]))
    assert (keys.dtype, len(keys)) == (np.uint64, 34)
    assert np.array_equal(find_images(hashes, keys), np.arange(100) % 3 == 0)
