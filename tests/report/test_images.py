"""Images embedded in the page."""

import base64
import io

import numpy as np
from PIL import Image

from tests.report.outline import Outline
from vitkit.report.images import MAX_SIDE, data_url, mosaic, tile


def test_every_image_decodes_and_has_an_alternative_text(page: str) -> None:
    images = Outline(page).images
    assert len(images) > 60
    for image in images:
        assert image["alt"]
        Image.open(io.BytesIO(base64.b64decode(str(image["src"]).split(",", 1)[1]))).load()


def decode(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.split(",", 1)[1])))


def test_small_images_are_lossless_and_large_ones_are_reduced() -> None:
    small = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(decode(data_url(small))), small)
    large = decode(data_url(np.zeros((600, 300, 3), dtype=np.uint8)))
    assert large.format == "JPEG"
    assert large.size == (MAX_SIDE // 2, MAX_SIDE)


def test_a_mosaic_has_transparent_gaps() -> None:
    html = mosaic(np.full((2, 3, 4, 4, 3), 200, dtype=np.uint8), "maps", side=24, gap=2)
    image = np.asarray(decode(html.split("'")[3]))
    assert image.shape == (2 * 8 + 2, 3 * 8 + 2 * 2, 4)
    assert (image[8:10, :, 3] == 0).all()
    assert (image[:8, :8] == [200, 200, 200, 255]).all()


def test_captions_are_escaped() -> None:
    assert "&lt;i&gt;" in tile(np.zeros((4, 4), dtype=np.uint8), "<i>")
