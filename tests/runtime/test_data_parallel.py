import threading

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tests.inference.conftest import small_model
from vitkit.errors import InputError
from vitkit.runtime.data_parallel import InParts


@pytest.fixture(autouse=True)
def cores() -> object:
    """Four, whatever the machine has."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


class Noting(nn.Module):
    """Notes who asks: thread, threads it may use, images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.asked = model, []

    def forward(self, images: Tensor) -> Tensor:
        self.asked.append((threading.current_thread().name, torch.get_num_threads(), len(images)))
        return self.model(images)


@pytest.mark.parametrize(
    ("images", "expected"),
    [(3, [(4, 3)]), (15, [(4, 15)]), (16, [(1, 4)] * 4), (18, [(1, 4), (1, 4), (1, 5), (1, 5)]), (32, [(1, 8)] * 4)],
)
def test_a_batch_is_shared_out_over_the_cores(images: int, expected: list[tuple[int, int]]) -> None:
    model, batch = Noting(small_model()), torch.randn(images, 3, 16, 16)
    with torch.inference_mode():
        found = InParts(model)(batch)
        assert sorted((threads, count) for _, threads, count in model.asked) == sorted(expected)
        assert_close(found, model.model(batch), rtol=0, atol=1e-5)
    assert torch.get_num_threads() == 4


def test_threads_that_come_later_have_all_the_cores() -> None:
    with torch.inference_mode():
        InParts(small_model())(torch.randn(16, 3, 16, 16))
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [4]


def test_gradients_go_through_the_model_itself() -> None:
    model, batch = Noting(small_model()), torch.randn(16, 3, 16, 16, requires_grad=True)
    InParts(model)(batch).sum().backward()
    assert batch.grad is not None
    assert [(name, count) for name, _, count in model.asked] == [(threading.current_thread().name, 16)]


def test_autocast_goes_through_the_model_itself() -> None:
    model = Noting(small_model())
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert InParts(model)(torch.randn(16, 3, 16, 16)).dtype == torch.bfloat16
    assert [count for _, _, count in model.asked] == [16]


def test_an_error_in_a_part_is_the_error_of_the_whole() -> None:
    with torch.inference_mode(), pytest.raises(InputError, match="multiple of the patch"):
        InParts(small_model())(torch.randn(16, 3, 15, 16))
