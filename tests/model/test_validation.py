import subprocess
import sys

import pytest
import torch

from vitkit.errors import InputError
from vitkit.model.validation import check_images, resolve_indices

from .small import random_images, small_config, small_model

NAN, INFINITE = torch.zeros(3, 3, 16, 24), torch.zeros(3, 3, 16, 24)
NAN[1, 2, 3, 4] = float("nan")
INFINITE[2, 0, 0, 0] = float("inf")

BAD = {
    "three axes": (torch.zeros(3, 16, 24), "images have shape (3, 16, 24): expected (batch, channels, height, width)"),
    "five axes": (torch.zeros(1, 2, 3, 16, 24), "images have shape (1, 2, 3, 16, 24)"),
    "channels": (
        torch.zeros(2, 1, 16, 24),
        "images have 1 channels (shape (2, 1, 16, 24)), the model takes 3: convert them, or create the model with "
        "in_channels=1",
    ),
    "channels last": (torch.zeros(2, 16, 24, 3), "images have 16 channels (shape (2, 16, 24, 3)), the model takes 3"),
    "height": (torch.zeros(2, 3, 15, 24), "image height 15 is not a multiple of the patch height 4: resize to 16"),
    "width": (torch.zeros(2, 3, 16, 25), "image width 25 is not a multiple of the patch width 8: resize to 24"),
    "smaller than a patch": (
        torch.zeros(2, 3, 16, 5),
        "image width 5 is not a multiple of the patch width 8: resize to 8",
    ),
    "empty": (torch.zeros(2, 3, 0, 24), "image height 0 is not a multiple of the patch height 4: resize to 4"),
    "uint8": (torch.zeros(2, 3, 16, 24, dtype=torch.uint8), "images are torch.uint8: scale to 0…1 and normalise first"),
    "float64": (
        torch.zeros(2, 3, 16, 24, dtype=torch.float64),
        "images are torch.float64, the model torch.float32: use images.to(torch.float32)",
    ),
    "NaN": (NAN, "image 1 of the batch has NaN or infinite pixels"),
    "infinite": (INFINITE, "image 2 of the batch has NaN or infinite pixels"),
}


@pytest.mark.parametrize(("images", "message"), BAD.values(), ids=BAD)
def test_bad_images_are_one_line_that_names_the_values(images, message):
    with pytest.raises(InputError) as caught:
        check_images(images, small_config(), torch.float32)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_public_forward_checks_its_images():
    model = small_model()
    images = random_images(model, size=(16, 20))
    for enter in (model, model.forward_features, model.embed, model.forward_intermediates, model.attention):
        with pytest.raises(InputError, match="image width 20 is not a multiple of the patch width 8"):
            enter(images)


# Under pytest, enforced annotations catch wrong axes and dtypes first; users run without them.
PLAIN = """
import torch
from vitkit.errors import InputError
from vitkit.model import create_model

model = create_model("vit_nano_patch4_32", seed=0)
for images in (torch.zeros(3, 32, 32), torch.zeros(1, 3, 32, 32, dtype=torch.uint8)):
    try:
        model(images)
    except InputError as error:
        print(error)
"""


def test_wrong_axes_and_integers_reach_the_check_in_plain_python():
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    axes, integers = done.stdout.splitlines()
    assert axes == "images have shape (3, 32, 32): expected (batch, channels, height, width)"
    assert integers.startswith("images are torch.uint8: scale to 0…1")


def test_other_dtypes_pass_under_autocast_and_into_a_model_of_that_dtype():
    model = small_model()
    halved = random_images(model).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(halved).dtype == torch.bfloat16
    assert model.bfloat16()(halved).dtype == torch.bfloat16
    assert model.double()(halved.double()).dtype == torch.float64


def test_good_images_pass_without_a_change():
    images = random_images(small_model())
    before = images.clone()
    assert check_images(images, small_config(), torch.float32) is None
    assert torch.equal(images, before)


def test_resolve_indices_returns_all_by_default_and_resolves_negative_indices():
    assert resolve_indices("layer", None, 3) == [0, 1, 2]
    assert resolve_indices("layer", [-1, 0, -3], 3) == [2, 0, 0]
    with pytest.raises(InputError, match=r"layer 3 is out of range: use 0…2, or -1 for the last"):
        resolve_indices("layer", [3], 3)
    with pytest.raises(InputError, match="no layer requested"):
        resolve_indices("layer", [], 3)
