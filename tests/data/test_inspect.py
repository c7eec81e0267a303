"""`vitkit inspect`: every planted fault is found, classified and counted; a clean set has none."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.cli.inspect import Inspect
from vitkit.data.dataset import ArrayImages, Dataset, Split
from vitkit.data.inspect import inspect_data, probe_image
from vitkit.data.open import open_data
from vitkit.errors import DataError
from vitkit.model.variants import VARIANTS


def photograph(seed: int, size: tuple[int, int] = (96, 64)) -> Image.Image:
    rng = np.random.default_rng(seed)
    total = np.zeros((size[1], size[0], 3))
    for cells in (2, 3, 5, 8, 13):
        noise = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        total += np.asarray(noise.resize(size, Image.Resampling.BICUBIC), float)
    return Image.fromarray(np.uint8(total / 5))


def encode(image: Image.Image, format: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """12 + 4 + 4 images of two classes, and one fault of each kind."""
    files = {f"{split}/{label}/{i}.png": encode(photograph(1000 * k + 100 * s + i))
             for s, (split, n) in enumerate([("train", 6), ("val", 2), ("test", 2)])
             for k, label in enumerate(["cat", "dog"]) for i in range(n)}  # fmt: skip
    files["test/cat/same_file.png"] = files["train/cat/0.png"]
    files["val/dog/same_pixels.bmp"] = encode(photograph(1001), "BMP")
    files["test/dog/near.jpg"] = encode(photograph(1002).resize((192, 128)), "JPEG", quality=60)
    files["val/cat/of_test.png"] = files["test/cat/1.png"]
    files["train/dog/mislabelled.png"] = files["train/cat/3.png"]
    files["train/cat/broken.jpg"] = encode(photograph(5), "JPEG")[:-300]
    files["train/cat/text.png"] = b"hello"
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def names(members: object) -> set[str]:
    return {"/".join(Path(m.name).parts[-3:]) for m in members}  # type: ignore[attr-defined]


def test_planted_faults_are_found(faulty: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = inspect_data(open_data(faulty), progress=lambda *state: seen.append(state))
    assert found.images == 27
    assert found.splits == {"train": 15, "val": 6, "test": 6}
    assert found.classes == {"cat": {"train": 8, "val": 3, "test": 3}, "dog": {"train": 7, "val": 3, "test": 3}}
    assert seen[-1] == (27, 27)
    assert {"/".join(Path(failure.name).parts[-3:]): split for split, failure in found.corrupt} == {
        "train/cat/broken.jpg": "train", "train/cat/text.png": "train"}  # fmt: skip
    assert [
        (c.kind, names(c.members)) for c in sorted(found.leaks, key=lambda c: (c.kind, c.members[0].split == "train"))
    ] == [
        ("bytes", {"val/cat/of_test.png", "test/cat/1.png"}),
        ("bytes", {"train/cat/0.png", "test/cat/same_file.png"}),
        ("near", {"train/dog/2.png", "test/dog/near.jpg"}),
        ("pixels", {"train/dog/1.png", "val/dog/same_pixels.bmp"}),
    ]
    assert [names(c.members) for c in found.conflicts] == [{"train/cat/3.png", "train/dog/mislabelled.png"}]
    assert found.leaked == {"val": 1, "test": 2}
    assert [c.leaks for c in found.copies] == [True, True, True, True, False]  # leaks first
    assert found.formats == {"PNG": 23, "BMP": 1, "JPEG": 1}
    assert found.modes == {"RGB": 25}
    assert (found.width.smallest, found.width.median, found.width.largest) == (96, 96, 192)
    assert found.aspect.median == 1.5
    assert found.imbalance == pytest.approx(8 / 7)


def test_a_clean_set_has_no_findings(tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(20):
            photograph(i + 50 * (label == "b")).save(tmp_path / label / f"{i}.png")
    found = inspect_data(open_data(tmp_path))
    assert found.copies == []
    assert found.corrupt == []
    assert found.advice.class_weights is None


def test_one_json_document(faulty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Inspect(str(faulty), json=True).run() == 0
    values = json.loads(capsys.readouterr().out)
    assert values["images"] == 27
    assert values["leaked"] == {"val": 1, "test": 2}
    assert len(values["corrupt"]) == 2
    assert {"split", "name", "reason"} == set(values["corrupt"][0])
    assert values["copies"][0]["leaks"]
    assert values["advice"]["model"] in VARIANTS
    assert len(values["fingerprint"]) == 64


def test_the_tables_list_every_fault(faulty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Inspect(str(faulty)).run() == 0
    text = capsys.readouterr().out
    for part in ("27 images, 2 classes", "2 of test (33.3%) have a duplicate in train", "mislabelled.png", "broken.jpg",
                 "2 corrupt images (7.41%)", "4 leaks", "suggests"):  # fmt: skip
        assert part in text


def test_nothing_decodable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jpg").write_bytes(b"no")
    with pytest.raises(DataError, match=r"none of its 1 images can be decoded, such as .*x\.jpg: is not an image"):
        inspect_data(open_data(tmp_path))


@pytest.mark.parametrize("format", ["JPEG", "TIFF", "PNG"])
def test_sizes_are_those_of_the_upright_image(format: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for size in ((96, 64), (2200, 2100)):  # the large JPEG is decoded at half its size
        stats = probe_image(encode(Image.new("RGB", size), format, exif=exif), "x")
        assert (stats.width, stats.height) == (size[1], size[0])


def test_arrays_with_other_channels_can_be_inspected() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 40, 40, 5), dtype=np.uint8)
    pixels[3] = pixels[0]
    dataset = Dataset("x", ["a", "b"], {"train": Split(ArrayImages(pixels, "x"), np.array([0, 0, 0, 1, 1, 1]))})
    found = inspect_data(dataset)
    assert found.modes == {"5 channels": 6}
    assert [[m.name for m in c.members] for c in found.conflicts] == [["x[0]", "x[3]"]]


def test_groceries(shared_data: Path) -> None:
    """Real photographs: no corrupt file, and some pairs taken seconds apart, none across the splits."""
    pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")
    found = inspect_data(open_data(shared_data / "grocery.parquet"))
    assert found.images == 2936
    assert found.formats == {"JPEG": 2936}
    assert not found.corrupt
    assert 1 <= len(found.copies) <= 10
    assert all(c.kind == "near" and not c.conflicts for c in found.copies)
    assert found.leaked == {"val": 0}
    assert found.classes["Garlic"] == {"train": 25, "val": 0}
    assert found.advice.model == "vit_tiny_patch16_224"
    assert found.advice.fine_tune


def test_classes_of_the_same_name_are_counted_apart() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8), np.uint8)
    split = Split(ArrayImages(pixels, "x"), np.array([0, 1, 2, 2, 2]))
    found = inspect_data(Dataset("birds", ["crane", "dog", "crane"], {"train": split}))
    assert found.classes == {"crane (0)": {"train": 1}, "dog": {"train": 1}, "crane (2)": {"train": 3}}
