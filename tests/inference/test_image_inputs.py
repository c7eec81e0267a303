"""Image inputs: every accepted type gives the same batch, and what is no image is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.model.small import small_model
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError, InputError
from vitkit.inference.image_inputs import MAX_PREVIEW_SIDE, as_list, find_images, prepare_images, preview
from vitkit.model import ModelInfo


@pytest.fixture
def model():
    model = small_model()
    model.info = ModelInfo(class_names=list("abcde"), preprocess=Preprocess(size=(16, 24)))
    return model


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_every_type_of_image_gives_the_same_batch(model, tmp_path):
    pixels = noise(40, 50, 3)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    expected = model.info.preprocess.normalize(model.info.preprocess.batch([pixels]))
    tensor = torch.from_numpy(pixels).permute(2, 0, 1)
    for image in (path, str(path), path.read_bytes(), Image.open(path), pixels, pixels[None], tensor, tensor[None]):
        batch, source = prepare_images(model, image)
        torch.testing.assert_close(batch, expected, rtol=0, atol=0)
        assert source.sizes.tolist() == [[40, 50]]
        np.testing.assert_array_equal(source.previews[0], pixels)


def test_a_tensor_of_floats_is_a_normalised_batch(model):
    images = torch.randn(2, 3, 16, 24)
    batch, source = prepare_images(model, images)
    assert batch is images
    assert source.regions.tolist() == [[0, 0, 24, 16]] * 2


def test_one_image_is_distinguished_from_many():
    assert as_list(noise(8, 8, 3))[1]
    images, single = as_list(torch.rand(2, 3, 8, 8))
    assert not single
    assert [image.shape for image in images] == [(8, 8, 3)] * 2


@pytest.mark.parametrize("image", [torch.full((3, 8, 8), 2.0), torch.zeros(3, 8, 8, dtype=torch.int64), 7])
def test_what_is_no_image_is_refused(image):
    with pytest.raises(InputError):
        as_list(image)


def test_a_preview_keeps_the_aspect_ratio_and_the_channels():
    assert preview(noise(3000, 1500, 1)).shape == (MAX_PREVIEW_SIDE, MAX_PREVIEW_SIDE // 2, 1)
    assert preview(noise(30, 15, 5)).shape == (30, 15, 3)


def test_folders_are_searched_in_sorted_order_without_hidden_files(tmp_path):
    for name in ("b.png", "a.jpg", "notes.txt", ".hidden.png"):
        (tmp_path / name).touch()
    assert [path.name for path in find_images([str(tmp_path)])] == ["a.jpg", "b.png"]
    assert [path.name for path in find_images([str(tmp_path / "*.png")])] == ["b.png"]


def test_images_are_found_by_name_folder_and_pattern(tmp_path: Path) -> None:
    image_file = tmp_path / "a.png"
    image_file.write_bytes(b"")
    folder = image_file.parent
    (folder / "notes.txt").write_text("", encoding="utf-8")
    (folder / "deeper.png").mkdir()
    other = folder / "deeper.png" / "c.JPG"
    other.write_bytes(b"")
    for hidden in (folder / "._a.png", folder / ".cache" / "b.png"):  # as macOS and file managers leave them
        hidden.parent.mkdir(exist_ok=True)
        hidden.write_bytes(b"")
    assert find_images([str(folder)]) == [image_file, other]
    assert find_images([str(folder / "*.png"), str(other)]) == [image_file, other]
    assert find_images(["-"]) == [Path("-")]
    with pytest.raises(DataError, match=r"no file or folder matches '.*bmp'"):
        find_images([str(folder / "*.bmp")])
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="no images in"):
        find_images([str(folder / "empty")])


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (3.5, "not float"),
        (torch.full((3, 8, 8), 2.0), "outside of 0…1"),
        (torch.full((3, 8, 8), float("nan")), "outside of 0…1"),
        (torch.zeros(3, 8, 8, dtype=torch.int64), "expected uint8"),
        (torch.zeros(8), "is no image"),
    ],
)
def test_an_input_that_is_no_image_is_a_one_line_error(image: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_list(image)
