"""Bad files in every input format, through the commands: they are named and counted, and errors are one line."""

import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vitkit.cli.main import main

from .test_images import ENCODED, encode, photograph, png_header

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow warns of decompression bombs before vitkit refuses them

BAD = {
    "empty.jpg": (b"", "the file is empty"),
    "truncated.jpg": (ENCODED["jpeg"][:-200], "truncated"),
    "scrambled.png": (ENCODED["png"][:60] + bytes(200) + ENCODED["png"][260:], "cannot be decoded"),
    "bomb.png": (png_header(30_000, 30_000), "pixels"),
    "text.jpg": (b"not a picture\n" * 50, "is not an image of a known format"),
    "archive.png": (b"PK\3\4" + bytes(60), "is not an image of a known format"),
}
MISNAMED = {"png.jpg": ENCODED["png"], "jpeg.png": encode("JPEG", quality=60), "webp.bmp": ENCODED["webp"]}
GOOD = 30


def contents() -> Iterator[tuple[str, str, bytes]]:
    """Yield (class, file name, content) of good, misnamed and bad images."""
    for i in range(GOOD):
        yield "ab"[i % 2], f"{i:02}.png", _png(i)
    for name, content in MISNAMED.items():
        yield "a", name, content
    for name, (content, _) in BAD.items():
        yield "b", name, content


def _png(number: int) -> bytes:
    import io

    file = io.BytesIO()
    photograph().rotate(7 * number).save(file, "PNG")
    return file.getvalue()


def as_folder(root: Path) -> Path:
    for label, name, content in contents():
        (root / label).mkdir(exist_ok=True)
        (root / label / name).write_bytes(content)
    return root


def as_csv(root: Path) -> Path:
    rows = ["path,label"]
    for label, name, content in contents():
        (root / name).write_bytes(content)
        rows.append(f"{name},{label}")
    (root / "all.csv").write_text("\n".join(rows), encoding="utf-8")
    return root / "all.csv"


def as_parquet(root: Path) -> Path:
    pa = pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")
    import pyarrow.parquet as pq

    labels, names, images = zip(*contents(), strict=True)
    table = pa.table({"image": pa.array(images, pa.binary()), "label": labels, "path": names})
    pq.write_table(table, root / "all.parquet")
    return root / "all.parquet"


FORMATS: dict[str, Callable[[Path], Path]] = {"folder": as_folder, "csv": as_csv, "parquet": as_parquet}
SHORT = {"model": "vit_nano_patch4_32", "config.depth": 1, "batch": 8, "budget.epochs": 0.3}
SHORT |= {"machine.precision": "fp32", "machine.compile": "off"}


def vitkit(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def train_command(data: Path, out: Path, **more: Any) -> list[str]:
    changes = [word for key, value in {**SHORT, **more}.items() for word in ("--set", f"{key}={value}")]
    return ["train", str(data), "--out", str(out), *changes]


@pytest.mark.parametrize("format", FORMATS)
def test_inspect_names_every_bad_file_and_no_misnamed_one(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = vitkit(capsys, "inspect", str(FORMATS[format](tmp_path)), "--json")
    assert code == 0
    found = json.loads(out)
    reasons = {Path(bad["name"]).name: bad["reason"] for bad in found["corrupt"]}
    assert reasons.keys() == BAD.keys()
    for name, (_, reason) in BAD.items():
        assert reason in reasons[name], name
    assert found["images"] == GOOD + len(MISNAMED) + len(BAD)


@pytest.mark.parametrize("format", FORMATS)
def test_train_refuses_bad_files_above_the_limit_and_leaves_them_out_below(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    data = FORMATS[format](tmp_path / "data")
    code, _, err = vitkit(capsys, *train_command(data, tmp_path / "refused"))
    assert code == 2
    assert "of 39 images cannot be read, more than the limit of 1.00%; the first: " in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "refused").exists()

    code, _, err = vitkit(capsys, *train_command(data, tmp_path / "run", corrupt_limit=0.2))
    assert code == 0, err
    left_out = [line.split(": ")[1] for line in err.splitlines() if line.startswith("left out: ")]
    assert sorted(Path(name).name for name in left_out) == sorted(BAD)
    result = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))
    images = json.loads((tmp_path / "run" / "model" / "config.json").read_text(encoding="utf-8"))["data"]["images"]
    assert images["train"] + images["val"] == GOOD + len(MISNAMED)
    assert images["val"] == result["val"]["n"]


def test_a_split_without_readable_images_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(40):
        place = tmp_path / "data" / "train" / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i}.png").write_bytes(_png(i))
    (tmp_path / "data" / "val" / "a").mkdir(parents=True)
    (tmp_path / "data" / "val" / "a" / "0.png").write_bytes(b"no image")
    code, _, err = vitkit(capsys, *train_command(tmp_path / "data", tmp_path / "run", corrupt_limit=0.2))
    assert code == 2
    assert "no image of its val split can be read" in err


def npz(path: Path, **arrays: np.ndarray) -> None:
    images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1])
    np.savez(path, **{"train_images": images, "train_labels": labels, **arrays})


def npz_with_a_huge_shape(path: Path) -> None:
    """Write a header that declares 3 TB, without data."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000, 1000, 1000, 3), }"
    header = header.ljust(118 - 1) + b"\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("train_images.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        file.writestr("train_labels.npy", b"")


def truncated_npz(path: Path) -> None:
    npz(path)
    path.write_bytes(path.read_bytes()[:-100])


def scrambled_npz(path: Path) -> None:
    npz(path)
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(range(60))
    path.write_bytes(content)


BAD_NPZ: dict[str, Callable[[Path], None]] = {
    "an empty file": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("no arrays", encoding="utf-8"),
    "a truncated file": truncated_npz,
    "scrambled bytes": scrambled_npz,
    "a shape of terabytes": npz_with_a_huge_shape,
    "no images": lambda path: npz(path, train_images=np.zeros((0, 8, 8, 3), np.uint8), train_labels=np.zeros(0, int)),
    "floats": lambda path: npz(path, train_images=np.zeros((4, 8, 8, 3))),
    "objects": lambda path: npz(path, train_images=np.array([b"a", None, 1, 2], dtype=object)),
    "too few labels": lambda path: npz(path, train_labels=np.array([0, 1])),
    "a negative label": lambda path: npz(path, train_labels=np.array([0, 1, -1, 0])),
    "a label beyond the names": lambda path: npz(path, class_names=np.array(["only"])),
}


@pytest.mark.parametrize("command", ["inspect", "train"])
@pytest.mark.parametrize("kind", BAD_NPZ)
def test_the_error_of_bad_arrays_is_one_line(
    kind: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.npz"
    BAD_NPZ[kind](path)
    words = ["inspect", str(path)] if command == "inspect" else train_command(path, tmp_path / "run")
    code, _, err = vitkit(capsys, *words)
    assert code == 2, err
    assert "bad" in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()
