"""Occlusion: windows, masks, and the drop of the log-probability."""

import pytest
import torch

from tests.model.small import random_images, small_model
from vitkit.explanation.occlusion import mask_patches, occlusion, window_masks


def test_occlusion_is_the_mean_drop_of_log_probability_over_the_windows_that_mask_a_patch():
    model = small_model()
    images = random_images(model, batch=1)
    found, _ = occlusion(model, images, torch.tensor([2]), window=2)
    expected, covered = torch.zeros(4, 3), torch.zeros(4, 3)
    with torch.no_grad():
        unmasked = model(images).log_softmax(dim=1)[0, 2]
        for row in (0, 1, 2):
            for column in (0, 1):
                hidden = images.clone()
                hidden[:, :, 4 * row : 4 * row + 8, 8 * column : 8 * column + 16] = 0
                drop = unmasked - model(hidden).log_softmax(dim=1)[0, 2]
                expected[row : row + 2, column : column + 2] += drop
                covered[row : row + 2, column : column + 2] += 1
    torch.testing.assert_close(found[0], expected / covered, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("grid", "side", "count"), [((14, 14), 3, 49), ((4, 3), 1, 12), ((5, 9), 5, 3), ((7, 7), 7, 1)]
)
def test_every_patch_is_in_a_window(grid, side, count):
    found = window_masks(grid, side)
    assert len(found) == count
    assert found.any(dim=0).all()
    assert (found.sum(dim=(1, 2)) == side * side).all()


def test_masking_changes_only_the_pixels_of_the_mask():
    image = torch.randn(3, 8, 16)
    masks = torch.zeros(1, 2, 2, dtype=torch.bool)
    masks[0, 1, 0] = True
    hidden = mask_patches(image, masks, (4, 8))[0]
    assert (hidden[:, 4:, :8] == 0).all()
    hidden[:, 4:, :8] = image[:, 4:, :8]
    assert torch.equal(hidden, image)
