"""The exported graph computes the same numbers as the model, and tracing leaves the process unchanged."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.inference.conftest import small_model
from vitkit.export.graph import DynamicSizeViT, WithPreprocessing, resampling_matrices


@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_the_matrix_for_the_trained_length_is_the_identity(mode: str) -> None:
    assert torch.equal(resampling_matrices(5, 9, mode)[4, :5], torch.eye(5))


@given(height=st.integers(1, 12), width=st.integers(2, 12))  # at width 1 torch's own resampling is wrong
def test_positions_at_any_size_equal_those_of_the_model(height: int, width: int) -> None:
    model = small_model()
    images = torch.randn(2, 3, 4 * height, 4 * width, generator=torch.Generator().manual_seed(height * 13 + width))
    torch.testing.assert_close(DynamicSizeViT(model, (12, 12))(images), model(images), rtol=0, atol=2e-5)


@pytest.mark.parametrize("offset", [0.0, 0.1])
def test_positions_resampled_without_antialiasing_equal_those_of_the_model(offset: float) -> None:
    model = small_model(position_antialias=False, position_offset=offset)
    for height, width in ((2, 3), (7, 12)):
        images = torch.randn(1, 3, 4 * height, 4 * width, generator=torch.Generator().manual_seed(height))
        torch.testing.assert_close(DynamicSizeViT(model, (12, 12))(images), model(images), rtol=0, atol=2e-5)


@pytest.mark.parametrize("position", ["sincos", "rotary", "none"])
def test_computed_positions_need_no_matrices(position: str) -> None:
    model = small_model(position=position)
    images = torch.randn(1, 3, 24, 8)
    assert torch.equal(DynamicSizeViT(model, (8, 8))(images), model(images))


def test_normalisation_in_the_graph_equals_preprocessing() -> None:
    model = small_model()
    pixels = torch.randint(0, 256, (2, 16, 16, 3), dtype=torch.uint8)
    probabilities, logits = WithPreprocessing(model, model.info.preprocess)(pixels)
    expected = model(model.info.preprocess.normalize(pixels.permute(0, 3, 1, 2)))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(probabilities, expected.softmax(-1), rtol=0, atol=1e-6)
