"""One data set in every packing: the same images, classes, splits, order and fingerprint."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.data import dataset
from vitkit.data import split as arrange
from vitkit.data.dataset import ArrayImages, Dataset, FileImages, Split
from vitkit.data.fingerprint import hash_content
from vitkit.data.open import open_data
from vitkit.data.pipeline import CorruptionBudget
from vitkit.data.split import stratified
from vitkit.errors import CorruptImageError, DataError, UnknownNameError, UsageError

pyarrow = pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")
from pyarrow import parquet  # noqa: E402  # after the skip

CLASSES = ["ant", "bee", "cat"]


def picture(seed: int) -> bytes:
    import io

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
    with open(root / "list.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for i, (split, label, content) in enumerate(rows):
            (root / "img" / f"{i}.png").write_bytes(content)
            writer.writerow([f"img/{i}.png", label, split][: len(header)])
    return root / "list.csv"


def write_parquet(path: Path, columns: dict[str, list[object]], metadata: dict[bytes, bytes] | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
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


def test_every_packing_gives_the_same_data_in_the_same_order(tmp_path: Path) -> None:
    shuffled = [ROWS[i] for i in np.random.default_rng(0).permutation(len(ROWS))]
    struct = columns_of(shuffled) | {"image": [{"bytes": r[2], "path": None} for r in shuffled]}
    write_csv(tmp_path / "c", ROWS)
    paths = columns_of(ROWS) | {"image": [f"img/{i}.png" for i in range(len(ROWS))]}
    shards = tmp_path / "s"
    for split, label in (("train", "train"), ("val", "validation")):
        part = {k: v for k, v in columns_of([r for r in ROWS if r[0] == split]).items() if k != "split"}
        write_parquet(shards / f"{label}-00000-of-00001.parquet", part)
    specs = [
        write_folder(tmp_path / "f", ROWS),
        write_folder(tmp_path / "g", [({"val": "valid"}.get(s, s), c, b) for s, c, b in ROWS], offset=11),
        tmp_path / "c" / "list.csv",
        write_parquet(tmp_path / "bytes.parquet", columns_of(shuffled)),
        write_parquet(tmp_path / "struct.parquet", struct),
        write_parquet(tmp_path / "c" / "paths.parquet", paths),
        shards,
        str(shards / "*.parquet"),
    ]
    first, *others = (open_data(spec) for spec in specs)
    assert first.class_names == CLASSES
    assert {k: len(v) for k, v in first.splits.items()} == {"train": 30, "val": 9}
    assert first.notes == ()
    expected = {s: sorted((c, b) for t, c, b in ROWS if t == s) for s in ("train", "val")}
    assert {s: sorted(rows) for s, rows in contents(first).items()} == expected
    for spec, other in zip(specs[1:], others, strict=True):
        assert contents(other) == contents(first), spec
        assert other.class_names == first.class_names
        assert other.fingerprint == first.fingerprint


def test_the_fingerprint_sees_content_class_and_split_but_no_names(tmp_path: Path) -> None:
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


def test_a_large_file_is_stamped_by_its_ends(tmp_path: Path) -> None:
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


def test_uncompressed_files_are_stamped_whole(tmp_path: Path) -> None:
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


def test_arrays_that_were_set_aside_keep_their_numbers(tmp_path: Path) -> None:
    pixels = np.arange(20, dtype=np.uint8)[:, None, None] * np.ones((1, 2, 2), np.uint8)
    np.savez(tmp_path / "x.npz", train_images=pixels, train_labels=np.arange(20) % 2)
    data = open_data(tmp_path / "x.npz", val_fraction=0.2)
    for split in data.splits.values():
        assert [split.images.name(i) for i in range(len(split))] == [
            f"x:train[{int(split.images[i][0, 0])}]" for i in range(len(split))
        ]


def test_a_val_split_is_made_and_noted(tmp_path: Path) -> None:
    rows = [r for r in ROWS if r[0] == "train"]
    folder = write_folder(tmp_path / "f", rows, splits=False)
    dataset = open_data(folder, val_fraction=0.2)
    assert {k: np.bincount(v.labels).tolist() for k, v in dataset.splits.items()} == {"train": [8] * 3, "val": [2] * 3}
    assert dataset.notes == ("no val split: 6 of the 30 train images were set aside as val (stratified, 20%, seed 0)",)
    both = contents(dataset)
    assert sorted(both["train"] + both["val"]) == sorted((c, b) for _, c, b in rows)
    packed = open_data(write_parquet(tmp_path / "p.parquet", columns_of(rows)), val_fraction=0.2)
    assert contents(packed) == both
    assert packed.fingerprint == dataset.fingerprint
    assert contents(open_data(folder, val_fraction=0.2, seed=1)) != both
    assert list(open_data(folder, val_fraction=0).splits) == ["train"]


def test_stratified_split_keeps_copies_together_and_leaves_every_class_in_train() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 2, 2), dtype=np.uint8)
    pixels[20:40] = pixels[:20]  # every image of the class twice
    labels = np.r_[np.zeros(40, int), np.ones(18, int), 2, 3]
    for seed in range(20):
        chosen = stratified(Split(ArrayImages(pixels, "x"), labels), 0.25, seed)
        assert (chosen[:20] == chosen[20:40]).all()
        assert 10 <= chosen[:40].sum() <= 11
        assert chosen[40:58].sum() == 4  # round(4.5)
        assert not chosen[58:].any()  # a class of one stays where it can be learnt


def test_the_split_of_an_image_does_not_depend_on_its_place() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (50, 3, 3), dtype=np.uint8)
    labels, order = np.arange(50) % 2, np.random.default_rng(2).permutation(50)
    straight = stratified(Split(ArrayImages(pixels, "x"), labels), 0.3, 5)
    shuffled = stratified(Split(ArrayImages(pixels[order], "x"), labels[order]), 0.3, 5)
    assert np.array_equal(straight[order], shuffled)


def test_a_set_too_large_to_read_first_goes_by_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (arrange, dataset):
        monkeypatch.setattr(module, "CONTENT_LIMIT", 8)
    rows = [r for r in ROWS if r[0] == "train"]
    folder = write_folder(tmp_path / "here", rows, splits=False)
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "hash_images", lambda images: pytest.fail("images were read"))
        whole = open_data(folder, val_fraction=0).splits["train"]
        made = open_data(folder, val_fraction=0.2)
    names = [whole.images.name(i) for i in range(30)]
    assert names == sorted(names)
    assert np.bincount(made.splits["val"].labels).tolist() == [2, 2, 2]
    moved = open_data(folder.rename(tmp_path / "there"), val_fraction=0.2)
    in_val = [[Path(d.splits["val"].images.name(i)).name for i in range(6)] for d in (made, moved)]
    assert in_val[0] == in_val[1]
    mark = moved.fingerprint
    Path(moved.splits["train"].images.name(0)).write_bytes(picture(4711))  # the first is always in the sample
    assert open_data(tmp_path / "there", val_fraction=0.2).fingerprint != mark


def test_a_test_split_is_never_made(tmp_path: Path) -> None:
    assert set(open_data(write_folder(tmp_path, ROWS)).splits) == {"train", "val"}


def test_only_a_test_split_is_fine(tmp_path: Path) -> None:
    assert set(open_data(write_folder(tmp_path, [("test", c, b) for _, c, b in ROWS])).splits) == {"test"}


def test_folder_oddities_are_noted(tmp_path: Path) -> None:
    write_folder(tmp_path, ROWS)
    (tmp_path / "train" / "ant" / "notes.txt").write_text("x")
    (tmp_path / "train" / "bee" / "IMG_1.HEIC").write_bytes(b"x")
    (tmp_path / "train" / "ant" / ".hidden.png").write_bytes(b"")
    (tmp_path / "train" / "ant" / "deeper").mkdir()
    (tmp_path / "train" / "ant" / "deeper" / "UPPER.PNG").write_bytes(picture(12345))
    (tmp_path / "train" / "loose.png").write_bytes(picture(1))
    (tmp_path / "train" / "nothing").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "train" / "ant" / "round").symlink_to(tmp_path / "train" / "ant")
    dataset = open_data(tmp_path)
    assert len(dataset.splits["train"]) == 31
    assert dataset.class_names == CLASSES
    notes = "\n".join(dataset.notes)
    assert "ant: ignored 1 files that are not images (.txt)\n" in notes
    assert "bee: ignored 1 files that are not images (.HEIC); export them as JPEG" in notes
    assert "nothing: ignored, it has no images" in notes
    assert "train: ignored 1 images that" in notes
    assert "next to the splits (docs)" in notes


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    dataset = open_data(
        write_folder(
            tmp_path, [("", c, b) for c, b in zip(["train", "bus"] * 5, map(picture, range(10)), strict=True)], False
        )
    )
    assert dataset.class_names == ["bus", "train"]


def test_numbered_folders_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    dataset = open_data(write_folder(tmp_path, [("", str(i), picture(i)) for i in range(12)], False), val_fraction=0)
    assert dataset.class_names == [str(i) for i in range(12)]


def test_folder_without_images_says_what_is_expected(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="no images in class folders; expected CLASS/IMAGE"):
        open_data(tmp_path)


def test_one_class_folder_instead_of_the_folder_of_them_is_recognised(tmp_path: Path) -> None:
    root = write_folder(tmp_path, [("", c, picture(i)) for i, c in enumerate("ab")], False)
    with pytest.raises(DataError, match="its images are in no class folder; name the folder above it"):
        open_data(root / "a")


def test_csv_of_numbers_means_class_indices(tmp_path: Path) -> None:
    rows = [("train", str(i % 3 * 2), picture(i)) for i in range(12)]
    dataset = open_data(write_csv(tmp_path, rows, ("image", "label")), val_fraction=0)
    assert dataset.class_names == ["0", "1", "2", "3", "4"]
    assert not dataset.has_class_names
    assert np.bincount(dataset.splits["train"].labels).tolist() == [4, 0, 4, 0, 4]
    assert dataset.notes == ("2 of the 5 classes have no images",)


def test_another_label_column(tmp_path: Path) -> None:
    table = columns_of(ROWS) | {"fine": [f"{r[1]}-{i % 2}" for i, r in enumerate(ROWS)]}
    path = write_parquet(tmp_path / "x.parquet", table)
    assert len(open_data(path, label="fine").class_names) == 6
    with pytest.raises(
        UnknownNameError, match=r"unknown column 'fin'; did you mean 'fine'.*x.parquet has image, label, split"
    ):
        open_data(path, label="fin")


@pytest.mark.parametrize(("text", "message"), [
    ("path,label\n", "no images found"),
    ("file,label\na.png,x\n", "unknown column 'image'"),
    ("path,label\na.png,\n", "line 2: no label"),
    ("path,label,split\na.png,x,middle\n", "unknown split 'middle'.*line 2"),
    ("path,label\na.png,x\nb.png,y\n", "none of its images exists, such as .*a.png"),
    ("", "unknown column"),
])  # fmt: skip
def test_wrong_csv_is_an_error_that_says_where(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        open_data(tmp_path / "x.csv")


def test_csv_with_semicolons_and_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(0))
    (tmp_path / "b.png").write_bytes(picture(1))
    (tmp_path / "x.csv").write_text("path;label\na.png;ä\nb.png;b, c\n", encoding="utf-8-sig")
    assert open_data(tmp_path / "x.csv", val_fraction=0).class_names == ["b, c", "ä"]


def test_a_missing_file_among_others_is_met_when_it_is_read(tmp_path: Path) -> None:
    path = write_csv(tmp_path, ROWS)
    (tmp_path / "img" / "3.png").unlink()
    train = open_data(path).splits["train"]
    failed = [i for i in range(len(train)) if train.images.name(i).endswith("/3.png")]
    with pytest.raises(CorruptImageError, match=r"3\.png: there is no such file"):
        train.images[failed[0]]


def test_huggingface_names_and_integer_labels(tmp_path: Path) -> None:
    features = {"info": {"features": {"label": {"names": ["zebra", "ape"], "_type": "ClassLabel"}}}}
    table = {"img": [{"bytes": picture(i), "path": f"{i}.png"} for i in range(8)], "label": [i % 2 for i in range(8)]}
    path = write_parquet(tmp_path / "train-0.parquet", table, {b"huggingface": json.dumps(features).encode()})
    dataset = open_data(path, val_fraction=0)
    assert dataset.class_names == ["zebra", "ape"]
    assert dataset.has_class_names
    assert dataset.splits["train"].images.name(0) in {f"{i}.png" for i in range(0, 8, 2)}


@pytest.mark.parametrize(("labels", "message"), [
    ([0, -1], "label -1 is negative"), ([0, 10**6], "label 1000000 is too large"), (["a", None], r"\[1\]: no label"),
])  # fmt: skip
def test_wrong_parquet_labels(tmp_path: Path, labels: list[object], message: str) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"image": [picture(0), picture(1)], "label": labels})
    with pytest.raises(DataError, match=message):
        open_data(path)


def test_a_row_without_bytes_is_a_corrupt_image(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", {"image": [picture(0), None], "label": ["a", "b"]})
    train = open_data(path, val_fraction=0).splits["train"]
    with pytest.raises(CorruptImageError, match=r"x\.parquet\[1\]: has no image bytes"):
        train.images[1]


@pytest.mark.parametrize("name", ["x.parquet", "x.npz", "x.csv"])
def test_files_of_another_kind_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe\0\x01 nonsense")
    with pytest.raises(DataError, match=name):
        open_data(tmp_path / name)


def save(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)  # type: ignore[arg-type]  # NumPy types them as one
    return path


def test_npz_keeps_order_and_names(tmp_path: Path) -> None:
    images, labels = np.random.default_rng(0).integers(0, 256, (40, 5, 4, 3), dtype=np.uint8), np.arange(40) % 4
    path = save(tmp_path / "x.npz", train_images=images, train_labels=labels, test_images=images[:8],
                test_labels=labels[:8, None], class_names=np.array(["a", "b", "c", "d"]))  # fmt: skip
    dataset = open_data(path, val_fraction=0)
    assert isinstance(dataset.splits["train"].images, ArrayImages)
    assert np.array_equal(dataset.splits["train"].images.pixels, images)
    assert np.array_equal(dataset.splits["test"].labels, labels[:8])
    assert dataset.class_names == ["a", "b", "c", "d"]
    assert dataset.splits["test"].images.name(3) == "x:test[3]"
    shared = open_data(path, val_fraction=0.25)
    assert isinstance(shared.splits["train"].images, ArrayImages)  # still in one piece, for loaders that index it
    assert [len(shared.splits[s]) for s in ("train", "val", "test")] == [32, 8, 8]


@pytest.mark.parametrize(("arrays", "message"), [
    ({"images": np.zeros((2, 4, 4), np.uint8)}, "no train_images, val_images or test_images; it has images"),
    ({"train_images": np.zeros((2, 4, 4), np.float32), "train_labels": [0, 1]}, "float32"),
    ({"train_images": np.zeros((2, 3, 8, 8), np.uint8), "train_labels": [0, 1]}, "channels first"),
    ({"train_images": np.zeros((2, 4, 4), np.uint8), "train_labels": [0, 1, 2]}, "for 2 images"),
    ({"train_images": np.zeros((2, 4, 4), np.uint8)}, "without train_labels"),
    ({"train_images": np.zeros((0, 4, 4), np.uint8), "train_labels": []}, "empty"),
    ({"train_images": np.zeros((2, 4, 4), np.uint8), "train_labels": [0, 3], "class_names": ["a"]}, "1 class names"),
    ({"train_images": np.array([{}, {}]), "train_labels": [0, 1]}, "allow_pickle"),
])  # fmt: skip
def test_wrong_arrays_are_named(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_data(save(tmp_path / "x.npz", **arrays))


def test_the_fingerprint_of_arrays_knows_no_order_either(tmp_path: Path) -> None:
    images, labels = np.random.default_rng(0).integers(0, 256, (20, 5, 4), dtype=np.uint8), np.arange(20) % 2
    marks = set()
    for i, order in enumerate((np.arange(20), np.arange(20)[::-1])):
        path = save(tmp_path / f"{i}.npz", train_images=images[order], train_labels=labels[order])
        marks.add(open_data(path, val_fraction=0).fingerprint)
    assert len(marks) == 1


def test_unknown_names_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder 'cifar'; did you mean 'cifar10'"):
        open_data("cifar")
    (tmp_path / "x.txt").touch()
    with pytest.raises(DataError, match="not a data set; expected a folder"):
        open_data(tmp_path / "x.txt")
    with pytest.raises(DataError, match="no parquet file matches"):
        open_data(str(tmp_path / "*.parquet"))
    with pytest.raises(UsageError, match="val_fraction=1"):
        open_data(tmp_path, val_fraction=1)


def test_groceries_from_parquet_and_from_an_unpacked_folder(shared_data: Path, tmp_path: Path) -> None:
    """The row's number as a file name, in which 10 comes before 2: the order is none that parquet knows."""
    table = parquet.read_table(shared_data / "grocery.parquet", columns=["image", "label", "split"])
    for i, row in enumerate(table.to_pylist()):
        folder = tmp_path / row["split"] / row["label"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i}.jpg").write_bytes(row["image"])
    packed, unpacked = open_data(shared_data / "grocery.parquet"), open_data(tmp_path)
    assert packed.class_names == unpacked.class_names
    assert len(packed.class_names) == 43
    assert {k: len(v) for k, v in packed.splits.items()} == {"train": 2640, "val": 296}
    assert packed.fingerprint == unpacked.fingerprint
    for name, split in packed.splits.items():
        assert np.array_equal(split.labels, unpacked.splits[name].labels)
        assert all(split.images[i] == unpacked.splits[name].images[i] for i in range(len(split)))
    assert len(open_data(shared_data / "grocery.parquet", label="fine_label").class_names) == 81


def test_all_corrupt_images_that_are_known_are_counted() -> None:
    corrupt = CorruptionBudget(50, 0.01)
    with pytest.raises(DataError, match=r"20 of 50 images .* the first: 0: torn .*--set corrupt_limit=FRACTION"):
        corrupt.add(*(CorruptImageError(str(i), "torn") for i in range(20)))
