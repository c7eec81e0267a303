import pytest
import torch

from vitkit.explanation import attention_map, describe_query
from vitkit.model import create_model

SMALL = dict(width=16, depth=2, heads=2, head_width=8, mlp_width=32, image_size=(8, 12), patch_size=4, num_classes=3)


@pytest.mark.parametrize("registers", [0, 2])
def test_a_pooled_class_token_is_the_default_query(registers: int) -> None:
    model = create_model({**SMALL, "registers": registers}, seed=0).eval()
    images = torch.randn(2, 3, 8, 12)
    full = model.attention(images, layers=[-1])[0]
    torch.testing.assert_close(attention_map(model, images).flatten(2), full[:, :, 0, 1 + registers :])
    assert describe_query(model) == "the class token's"


def test_mean_pooling_averages_the_rows_of_patches_without_registers() -> None:
    model = create_model({**SMALL, "registers": 2, "pooling": "mean"}, seed=0).eval()
    images = torch.randn(2, 3, 16, 8)
    full = model.attention(images, layers=[0], heads=[1])[0]
    found = attention_map(model, images, layer=0, heads=[1])
    assert found.shape == (2, 1, 4, 2)
    torch.testing.assert_close(found.flatten(2), full[:, :, 3:, 3:].mean(dim=2))


def test_mean_all_pooling_averages_all_rows() -> None:
    model = create_model({**SMALL, "registers": 1, "pooling": "mean_all"}, seed=0).eval()
    images = torch.randn(1, 3, 8, 12)
    full = model.attention(images, layers=[1])[0]
    torch.testing.assert_close(attention_map(model, images).flatten(2), full[:, :, :, 2:].mean(dim=2))
