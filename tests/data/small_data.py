"""A small data set of three classes in every format, for the tests of readers, splits and shards."""

import csv
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.data.dataset import Dataset

CLASSES = ["ant", "bee", "cat"]


def picture(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


# (split, class, content): 3 classes, 10 train and 3 val images each
ROWS = [(s, c, picture(100 * k + i + 50 * (s == "val"))) for s, n in (("train", 10), ("val", 3))
        for k, c in enumerate(CLASSES) for i in range(n)]  # fmt: skip


def write_folder(root: Path, rows: list[tuple[str, str, bytes]], splits: bool = True, offset: int = 7) -> Path:
    """File names say nothing about the order in `rows`."""
    for i, (split, label, content) in enumerate(rows):
        folder = root / split / label if splits else root / label
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{(i * offset) % 97}.png").write_bytes(content)
    return root


def write_csv(
    root: Path, rows: list[tuple[str, str, bytes]], header: tuple[str, ...] = ("path", "label", "split")
) -> Path:
    (root / "img").mkdir(parents=True)
    with open(root / "list.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for i, (split, label, content) in enumerate(rows):
            (root / "img" / f"{i}.png").write_bytes(content)
            writer.writerow([f"img/{i}.png", label, split][: len(header)])
    return root / "list.csv"


def write_parquet(path: Path, columns: dict[str, list[object]], metadata: dict[bytes, bytes] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow = pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns).replace_schema_metadata(metadata), path)
    return path


def columns_of(rows: list[tuple[str, str, bytes]]) -> dict[str, list[object]]:
    return {"image": [r[2] for r in rows], "label": [r[1] for r in rows], "split": [r[0] for r in rows]}


def contents(dataset: Dataset) -> dict[str, list[tuple[str, object]]]:
    """Per split, in order: (class name, image)."""
    return {
        name: [(dataset.class_names[k], split.images[i]) for i, k in enumerate(split.labels)]
        for name, split in dataset.splits.items()
    }


TRAIN = [row for row in ROWS if row[0] == "train"]


def write_tar(path: Path, rows: list[tuple[str, str, bytes]], labels: Callable[[str], dict[str, bytes]]) -> Path:
    """Write a WebDataset tar. `labels` gives the files (suffix → content) that hold the class of an image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for i, (_, label, content) in enumerate(rows):
            for suffix, value in {"png": content, **labels(label)}.items():
                member = tarfile.TarInfo(f"./some/{i:04}.{suffix}")
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
    return path


LABELLED: dict[str, Callable[[str], dict[str, bytes]]] = {
    "cls": lambda label: {"cls": label.encode()},
    "json": lambda label: {"json": json.dumps({"label": label, "width": 8}).encode()},
    "txt": lambda label: {"txt": f"{label}\n".encode()},
    "cls before txt": lambda label: {"txt": b"a caption", "cls": label.encode(), "mask.npy": b"\0" * 100},
}


def save_npz(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]  # NumPy types them as one
    return path
