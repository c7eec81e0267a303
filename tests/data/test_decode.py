"""Every mode and format is decoded as a viewer shows it: pixel values are checked, not just shapes."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.data.decode import PixelRange, decode, pixel_range
from vitkit.errors import CorruptImageError

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def encode(image: Image.Image, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def corners(size: tuple[int, int] = (24, 16)) -> Image.Image:
    """Red top left, green top right, blue bottom left, white bottom right: every rotation and reflection differs."""
    image = Image.new("RGB", size, WHITE)
    w, h = size[0] // 2, size[1] // 2
    for place, colour in {(0, 0): RED, (w, 0): GREEN, (0, h): BLUE}.items():
        image.paste(colour, (*place, place[0] + w, place[1] + h))
    return image


def corner_values(image: Image.Image) -> list[tuple[int, ...]]:
    w, h = image.size
    return [image.getpixel(p) for p in ((2, 2), (w - 3, 2), (2, h - 3), (w - 3, h - 3))]


@pytest.mark.parametrize("format", ["PNG", "BMP", "GIF", "TIFF", "WEBP"])
def test_lossless_formats_give_back_their_pixels(format: str) -> None:
    image = decode(encode(corners(), format, **({"lossless": True} if format == "WEBP" else {})))
    assert image.mode == "RGB"
    assert np.array_equal(image, corners())


def test_jpeg_is_close() -> None:
    difference = np.abs(np.int16(decode(encode(corners(), "JPEG", quality=95, subsampling=0))) - np.int16(corners()))
    assert difference.max() < 30
    assert difference.mean() < 2


@pytest.mark.parametrize("format", ["ICO", "PPM", "TGA"])
def test_formats_off_the_list_are_refused(format: str) -> None:
    with pytest.raises(CorruptImageError, match="not an image of a known format"):
        decode(encode(corners((32, 32)), format))


def test_grey_and_colour_convert_into_each_other() -> None:
    grey = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8))
    colour = np.asarray(decode(encode(grey, "PNG"), channels=3))
    assert (colour == np.asarray(grey)[..., None]).all()
    assert np.array_equal(decode(encode(grey, "PNG"), channels=1), grey)
    assert decode(encode(Image.new("RGB", (1, 1), GREEN), "PNG"), channels=1).getpixel((0, 0)) == 150  # 0.587 · 255


def test_one_bit_becomes_black_and_white() -> None:
    bits = Image.fromarray(np.array([[0, 255], [255, 0]], np.uint8)).convert("1")
    assert np.asarray(decode(encode(bits, "PNG"), channels=1)).tolist() == [[0, 255], [255, 0]]


def test_transparency_is_composited_over_white() -> None:
    image = Image.new("RGBA", (3, 1))
    for x, pixel in enumerate([(0, 0, 0, 0), (*RED, 255), (*BLUE, 128)]):
        image.putpixel((x, 0), pixel)
    for format in ("PNG", "WEBP", "TIFF"):
        options = {"lossless": True, "exact": True} if format == "WEBP" else {}
        pixels = np.asarray(decode(encode(image, format, **options)))[0].tolist()
        assert pixels == [[255, 255, 255], [255, 0, 0], [127, 127, 255]], format


def test_grey_with_alpha_is_composited_over_white() -> None:
    image = Image.fromarray(np.array([[[0, 0], [100, 255], [0, 51]]], np.uint8), "LA")
    assert np.asarray(decode(encode(image, "PNG"), channels=1))[0].tolist() == [255, 100, 204]


@pytest.mark.parametrize("format", ["PNG", "GIF"])
def test_palette_with_a_transparent_entry(format: str) -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 0])
    image.putpixel((1, 0), 1)
    assert np.asarray(decode(encode(image, format, transparency=1)))[0].tolist() == [[255, 0, 0], [255, 255, 255]]
    assert np.asarray(decode(encode(image, format)))[0].tolist() == [[255, 0, 0], [0, 0, 0]]


def test_transparent_colour_of_rgb_png() -> None:
    image = Image.new("RGB", (2, 1), RED)
    image.putpixel((1, 0), (1, 2, 3))
    pixels = np.asarray(decode(encode(image, "PNG", transparency=(1, 2, 3))))[0].tolist()
    assert pixels == [[255, 0, 0], [255, 255, 255]]


def test_cmyk_tiff_and_inverted_adobe_jpeg() -> None:
    ink = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # no cyan, all magenta and yellow: red
    assert decode(encode(ink, "TIFF")).getpixel((8, 8)) == RED
    assert decode(encode(ink, "TIFF"), channels=1).getpixel((8, 8)) == 76  # 0.299 · 255
    jpeg = encode(ink, "JPEG", quality=95)
    assert b"Adobe" in jpeg  # written inverted, as Photoshop does
    red = np.array(decode(jpeg).getpixel((8, 8)))
    assert np.abs(red - RED).max() <= 3


def test_16_bit_grey_is_scaled_by_its_range() -> None:
    values = np.array([[0, 128, 257, 32768, 65535]], np.uint16)
    for format in ("PNG", "TIFF"):
        image = decode(encode(Image.fromarray(values), format), channels=1)
        assert np.asarray(image)[0].tolist() == [0, 0, 1, 128, 255], format


def test_a_range_keeps_the_grey_levels_of_12_bits_in_a_16_bit_file() -> None:
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    for format in ("PNG", "TIFF"):
        content = encode(Image.fromarray(values), format)
        assert len(np.unique(np.asarray(decode(content, channels=1)))) == 17
        found = np.asarray(decode(content, channels=1, value_range=(0, 4095)))
        np.testing.assert_array_equal(found, np.rint(values / 4095 * 255))
        assert pixel_range(content, "x") == PixelRange((0, 4095), (0, 65535))
    assert np.asarray(decode(encode(Image.fromarray(values), "PNG"), channels=1, value_range=(100, 200))).max() == 255
    assert pixel_range(encode(Image.new("RGB", (4, 4)), "PNG"), "x") is None


def colour_of_16_bits() -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    row = b"\0" + struct.pack(">3H", 65535, 32768, 257)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 1, 1, 16, 2, 0, 0, 0))
    return png + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")


def test_16_bit_colour_is_scaled_by_its_range() -> None:
    assert decode(colour_of_16_bits()).getpixel((0, 0)) == (255, 128, 1)
    found = pixel_range(colour_of_16_bits(), "x")
    assert found is not None
    assert (found.used, found.nominal, found.colour) == ((257, 65535), (0, 65535), True)


def test_a_range_cannot_be_applied_to_16_bit_colour() -> None:
    with pytest.raises(CorruptImageError, match="scan: has 16-bit colour, of which only the upper 8 bits can be read"):
        decode(colour_of_16_bits(), value_range=(0, 4095), name="scan")


def test_32_bit_and_float_images_use_the_smallest_range_that_holds_them() -> None:
    cases = [
        (np.array([[0.0, 0.5, 1.0]], np.float32), [0, 128, 255]),
        (np.array([[0.0, 100.4, 255.0]], np.float32), [0, 100, 255]),
        (np.array([[0.0, 32767.5, 65535.0]], np.float32), [0, 128, 255]),
        (np.array([[-2.0, 0.0, 2.0]], np.float32), [0, 128, 255]),
        (np.array([[0, 100, 255]], np.int32), [0, 100, 255]),
        (np.array([[0, 1, 65535]], np.int32), [0, 0, 255]),
        (np.array([[-100_000, 0, 100_000]], np.int32), [0, 128, 255]),
        (np.full((1, 3), 1e6, np.float32), [0, 0, 0]),
    ]
    for values, expected in cases:
        image = decode(encode(Image.fromarray(values), "TIFF"), channels=1)
        assert np.asarray(image)[0].tolist() == expected, values


def test_float_with_nan_is_an_error() -> None:
    with pytest.raises(CorruptImageError, match="scan: has NaN"):
        decode(encode(Image.fromarray(np.array([[np.nan, 1]], np.float32)), "TIFF"), name="scan")


# EXIF orientation → the corners of the upright image, as the standard lays them down
TURNS = {
    1: [RED, GREEN, BLUE, WHITE],
    2: [GREEN, RED, WHITE, BLUE],
    3: [WHITE, BLUE, GREEN, RED],
    4: [BLUE, WHITE, RED, GREEN],
    5: [RED, BLUE, GREEN, WHITE],
    6: [BLUE, RED, WHITE, GREEN],
    7: [WHITE, GREEN, BLUE, RED],
    8: [GREEN, WHITE, RED, BLUE],
}


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", TURNS)
def test_exif_orientation_is_applied(format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"lossless": True}}.get(format, {})
    image = decode(encode(corners((32, 16)), format, exif=exif, **options))
    assert image.size == ((16, 32) if orientation >= 5 else (32, 16))
    for got, expected in zip(corner_values(image), TURNS[orientation], strict=True):
        assert np.abs(np.subtract(got, expected)).max() <= 4


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_a_broken_exif_block_is_ignored() -> None:
    image = decode(encode(corners(), "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff", quality=95, subsampling=0))
    assert image.size == corners().size
    text = struct.pack(">2sHIHHHI4sI", b"MM", 42, 8, 1, 0x0112, 2, 4, b"up!\0", 0)  # an orientation in words
    assert decode(encode(corners(), "JPEG", exif=b"Exif\0\0" + text)).size == corners().size


@pytest.mark.parametrize("format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_is_decoded_to_its_first_frame(format: str) -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in (RED, GREEN)]
    options = {"lossless": True} if format == "WEBP" else {}
    encoded = encode(frames[0], format, save_all=True, append_images=frames[1:], **options)
    assert decode(encoded).getpixel((4, 4)) == RED


def test_multi_picture_jpeg_of_phones() -> None:
    frames = [Image.new("RGB", (8, 8), c) for c in (RED, GREEN)]
    encoded = encode(frames[0], "MPO", save_all=True, append_images=frames[1:])
    assert np.abs(np.subtract(decode(encoded).getpixel((4, 4)), RED)).max() <= 3


def test_arrays_and_pillow_images_are_accepted() -> None:
    pixels = np.asarray(corners())
    assert np.array_equal(decode(pixels), pixels)
    assert np.array_equal(decode(corners()), pixels)
    assert np.array_equal(decode(pixels[..., :1], channels=1), pixels[..., 0])
    assert np.array_equal(decode(pixels[:, ::2]), pixels[:, ::2])  # not contiguous
    with pytest.raises(CorruptImageError, match=r"float32 \(4, 4\)"):
        decode(np.zeros((4, 4), np.float32))


def test_errors_name_the_path(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encode(corners(), "PNG"))
    assert np.array_equal(decode(tmp_path / "a.png"), corners())
    with pytest.raises(CorruptImageError, match=r"b\.png: there is no such file"):
        decode(tmp_path / "b.png")


@pytest.mark.parametrize(
    ("side", "target", "expected"),
    [(800, 100, 200), (800, 101, 400), (800, 50, 100), (800, 1, 100), (399, 100, 399), (400, 100, 200)],
)
def test_reduced_jpeg_keeps_twice_the_target(side: int, target: int, expected: int) -> None:
    encoded = encode(corners((side, side)), "JPEG")
    assert decode(encoded, min_size=(target, target)).size == (expected, expected)
    assert decode(encoded).size == (side, side)


def test_reduced_jpeg_takes_the_orientation_into_account() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    encoded = encode(corners((800, 200)), "JPEG", exif=exif)  # upright: 200 wide, 800 high
    assert decode(encoded, min_size=(200, 50)).size == (100, 400)
    assert decode(encoded, min_size=(50, 200)).size == (200, 800)


def test_reduced_jpeg_shows_the_same_image(shared_data: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install 'vitkit[data]'")
    photos = parquet.read_table(shared_data / "grocery.parquet", columns=["image"])["image"]
    worst: list[float] = []
    for index in range(0, len(photos), 200):
        encoded = photos[index].as_py()
        full, reduced = decode(encoded), decode(encoded, min_size=(64, 64))
        assert reduced.width * 2 in (full.width, full.width + 1)
        small = [np.asarray(i.resize((64, 64), Image.Resampling.BICUBIC), np.float32) for i in (full, reduced)]
        worst.append(float(np.abs(small[0] - small[1]).mean()))
    assert np.median(worst) < 1  # of 255: less than the photographs' own JPEG loss
    assert 0 < max(worst) < 3
