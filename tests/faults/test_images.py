"""Any bytes decode to an image or raise a CorruptImageError that names it, in bounded time."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitkit.data.dataset import FileImages, ReadFailure, Split
from vitkit.data.decode import MAX_PIXELS, decode
from vitkit.data.decode_pipeline import CorruptionBudget, read_split
from vitkit.data.open import open_data
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import filter_readable
from vitkit.errors import CorruptImageError, DataError


def photograph(mode: str = "RGB") -> Image.Image:
    """Return a smooth image with noise, so that every byte of its file matters."""
    y, x = np.mgrid[0:48, 0:64]
    noise = np.random.default_rng(0).integers(0, 24, (48, 64, 3))
    return Image.fromarray(np.uint8(np.stack([3 * x, 4 * y, 2 * (x + y)], -1) + noise)).convert(mode)


def encode(format: str, mode: str = "RGB", **options: object) -> bytes:
    file = io.BytesIO()
    photograph(mode).save(file, format, **options)
    return file.getvalue()


ENCODED = {
    "jpeg": encode("JPEG"),
    "progressive jpeg": encode("JPEG", progressive=True),
    "cmyk jpeg": encode("JPEG", "CMYK"),
    "png": encode("PNG"),
    "palette png": encode("PNG", "P"),
    "16-bit png": encode("PNG", "I;16"),
    "webp": encode("WEBP"),
    "lossless webp": encode("WEBP", lossless=True),
    "bmp": encode("BMP"),
    "gif": encode("GIF"),
    "tiff": encode("TIFF"),
    "lzw tiff": encode("TIFF", compression="tiff_lzw"),
    "float tiff": encode("TIFF", "F"),
}


def attempt(content: bytes, name: str) -> Image.Image | CorruptImageError:
    """Return the image or the error; an error has to name the image in one line."""
    try:
        return decode(content, name=name)
    except CorruptImageError as error:
        message = str(error)
        result = error
    assert message.startswith(f"{name}: ")
    assert "\n" not in message
    return result


@pytest.mark.filterwarnings("ignore")  # Pillow warns of damage that it tolerates
@pytest.mark.parametrize("kind", ENCODED)
def test_a_truncated_file_is_an_error_or_decodes_to_the_same_pixels(kind: str) -> None:
    whole, refused = ENCODED[kind], 0
    picture = np.asarray(decode(whole))
    cuts = sorted({*range(0, len(whole), max(len(whole) // 60, 1)), *range(max(len(whole) - 12, 0), len(whole))})
    for cut in cuts:
        result = attempt(whole[:cut], kind)
        refused += isinstance(result, CorruptImageError)
        assert isinstance(result, CorruptImageError) or np.array_equal(result, picture), f"cut at {cut} of {len(whole)}"
    assert refused > len(cuts) * 0.7


@settings(max_examples=300)
@given(kind=st.sampled_from(list(ENCODED)), data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_mutated_bytes_give_an_image_or_an_error(kind: str, data: st.DataObject) -> None:
    content = bytearray(ENCODED[kind])
    # Headers and tables are in the first bytes, where a change does most damage.
    places = st.one_of(st.integers(0, min(199, len(content) - 1)), st.integers(0, len(content) - 1))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(places)] = data.draw(st.integers(0, 255))
    image = attempt(bytes(content), "mutated")
    if not isinstance(image, CorruptImageError):
        assert Preprocess(size=32).resize_and_crop(image).shape == (32, 32, 3)


@settings(max_examples=150)
@given(kind=st.sampled_from(["jpeg", "progressive jpeg", "cmyk jpeg", "png"]), data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_check_decodable_accepts_exactly_what_can_be_decoded(kind: str, data: st.DataObject) -> None:
    content = bytearray(ENCODED[kind])
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))])
    try:
        Preprocess(size=32).check_decodable(cut, "image")
        whole = True
    except CorruptImageError:
        whole = False
    assert whole == (not isinstance(attempt(cut, "image"), CorruptImageError))


STARTS = [b"", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"RIFF\xff\0\0\0WEBPVP8 "]


@given(content=st.binary(max_size=400), start=st.sampled_from(STARTS))
@pytest.mark.filterwarnings("ignore")
def test_noise_after_a_valid_signature_is_an_image_or_an_error(content: bytes, start: bytes) -> None:
    with pytest.raises(CorruptImageError, match="noise: "):
        decode(start + content, name="noise")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_header(width: int, height: int) -> bytes:
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0))
    return start + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore:Image size")
@pytest.mark.parametrize("size", [(10_000, 10_000), (30_000, 30_000), (1, 100_000_000), (2**31 - 1, 2**31 - 1)])
def test_a_decompression_bomb_is_refused_by_its_header(size: tuple[int, int]) -> None:
    assert size[0] * size[1] > MAX_PIXELS
    with pytest.raises(CorruptImageError, match=r"bomb: has .*pixels"):
        decode(png_header(*size), name="bomb")


def test_the_pixel_limit_can_be_set() -> None:
    with pytest.raises(CorruptImageError, match="64×48 pixels, more than the limit of 3,071"):
        decode(ENCODED["png"], max_pixels=64 * 48 - 1)
    assert decode(ENCODED["png"], max_pixels=64 * 48).size == (64, 48)


def test_a_long_thin_image_is_cropped_before_resizing() -> None:
    strip = np.zeros((1, 1_000_000, 3), np.uint8)
    strip[:, 499_000:501_000] = 200
    seen = Preprocess(size=224)(strip)  # the complete image, at a height of 256, would take 786 GB
    assert seen.unique().tolist() == [200]


def test_files_that_are_not_images_are_errors(tmp_path: Path) -> None:
    cases = {
        "empty.jpg": b"",
        "text.jpg": b"not a picture\n" * 50,
        "zip.png": b"PK\3\4" + bytes(60),
        "html.gif": b"<html>",
    }
    reasons = {"empty.jpg": "the file is empty"}
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptImageError) as caught:
            decode(tmp_path / name)
        assert caught.value.name == str(tmp_path / name)
        assert caught.value.reason.startswith(reasons.get(name, "is not an image of a known format (JPEG"))
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(CorruptImageError, match=r"folder\.png"):
        decode(tmp_path / "folder.png")


def folder_with_bad(tmp_path: Path, good: int, bad: int) -> Path:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
    for i in range(good):
        image = photograph().rotate(i % 90)
        image.save(tmp_path / ("cat", "dog")[i % 2] / f"{i:03}.png")
    for i in range(bad):
        (tmp_path / "dog" / f"bad{i:03}.jpg").write_bytes(ENCODED["jpeg"][: -200 - i])
    return tmp_path


def test_corrupt_files_below_the_limit_are_named_and_left_out(tmp_path: Path) -> None:
    split = open_data(folder_with_bad(tmp_path, good=198, bad=2), val_fraction=0).splits["train"]
    seen: list[tuple[int, int]] = []
    kept, bad = filter_readable(
        split, Preprocess(size=16), corrupt_limit=0.01, progress=lambda *state: seen.append(state)
    )
    assert sorted(Path(failure.name).name for failure in bad) == ["bad000.jpg", "bad001.jpg"]
    assert all("truncated" in failure.reason for failure in bad)
    assert len(kept) == 198
    assert seen[-1] == (200, 200)
    names = [kept.images.name(i) for i in range(len(kept))]
    assert not any("bad" in name for name in names)
    assert [Path(n).parent.name == "dog" for n in names] == kept.labels.astype(bool).tolist()


def test_too_many_corrupt_files_are_an_error(tmp_path: Path) -> None:
    split = open_data(folder_with_bad(tmp_path, good=97, bad=3), val_fraction=0).splits["train"]
    with pytest.raises(
        DataError, match=r"\d of 100 images cannot be read, more than the limit of 1.00%; the first: .*bad"
    ):
        filter_readable(split, Preprocess(size=16))
    assert len(filter_readable(split, Preprocess(size=16), corrupt_limit=0.03)[0]) == 97


def test_results_come_in_order_with_their_labels(tmp_path: Path) -> None:
    split = open_data(folder_with_bad(tmp_path, good=30, bad=1), val_fraction=0).splits["train"]
    preprocess = Preprocess(size=16)
    results, kept, _ = read_split(split, preprocess, corrupt_limit=0.1)
    for i in range(len(kept)):
        assert (results[i] == preprocess(kept.images[i])).all()


def test_a_corrupt_image_is_counted_once() -> None:
    corrupt = CorruptionBudget(total=100, limit=0.01)
    for _ in range(5):
        corrupt.add(ReadFailure("a.jpg", "is empty"))
    assert corrupt.failures == [ReadFailure("a.jpg", "is empty")]
    with pytest.raises(DataError, match="2 of 100 images"):
        corrupt.add(ReadFailure("b.jpg", "is empty"))


def test_a_missing_file_counts_as_corrupt(tmp_path: Path) -> None:
    photograph().save(tmp_path / "a.png")
    split = Split(FileImages([str(tmp_path / "a.png"), str(tmp_path / "gone.png")]), np.array([0, 1]))
    kept, bad = filter_readable(split, Preprocess(size=16), corrupt_limit=0.5)
    assert len(kept) == 1
    assert bad == [ReadFailure(str(tmp_path / "gone.png"), "there is no such file")]
