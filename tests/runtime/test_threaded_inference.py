import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tests.inference.conftest import small_model
from vitkit.errors import InputError
from vitkit.runtime import threaded_inference
from vitkit.runtime.threaded_inference import ThreadedInference, available_cores, thread_pool, torch_threads

CORES = 4


@pytest.fixture(autouse=True)
def cores() -> Iterator[None]:
    """Use four threads on any machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(CORES)
    yield
    torch.set_num_threads(before)


class Recorder(nn.Module):
    """Records the calling thread, its number of torch threads and the batch size of each call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.calls = model, []

    def forward(self, images: Tensor) -> Tensor:
        self.calls.append((threading.current_thread().name, torch.get_num_threads(), len(images)))
        return self.model(images)


def in_new_thread(function: Callable[[], object]) -> object:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize(
    ("images", "expected"),
    [(3, [(4, 3)]), (15, [(4, 15)]), (16, [(1, 4)] * 4), (18, [(1, 4), (1, 4), (1, 5), (1, 5)]), (32, [(1, 8)] * 4)],
)
def test_a_large_enough_batch_is_split_across_cores(images: int, expected: list[tuple[int, int]]) -> None:
    model, batch = Recorder(small_model()), torch.randn(images, 3, 16, 16)
    with torch.inference_mode():
        found = ThreadedInference(model)(batch)
        assert sorted((threads, count) for _, threads, count in model.calls) == sorted(expected)
        assert_close(found, model.model(batch), rtol=0, atol=1e-5)
    assert torch.get_num_threads() == CORES


def test_later_threads_still_use_all_cores() -> None:
    with torch.inference_mode():
        ThreadedInference(small_model())(torch.randn(16, 3, 16, 16))
    assert in_new_thread(torch.get_num_threads) == CORES


def test_gradients_use_the_model_directly() -> None:
    model, batch = Recorder(small_model()), torch.randn(16, 3, 16, 16, requires_grad=True)
    ThreadedInference(model)(batch).sum().backward()
    assert batch.grad is not None
    assert [(name, count) for name, _, count in model.calls] == [(threading.current_thread().name, 16)]


def test_autocast_uses_the_model_directly() -> None:
    model = Recorder(small_model())
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert ThreadedInference(model)(torch.randn(16, 3, 16, 16)).dtype == torch.bfloat16
    assert [count for _, _, count in model.calls] == [16]


def test_an_error_in_one_part_is_raised() -> None:
    with torch.inference_mode(), pytest.raises(InputError, match="multiple of the patch"):
        ThreadedInference(small_model())(torch.randn(16, 3, 15, 16))


def test_threads_that_create_pools_at_once_share_them_and_change_no_thread_count() -> None:
    threaded_inference._create_pool.cache_clear()
    start, pools, counts = threading.Barrier(8), [], []

    def create(cores: int) -> None:
        start.wait()
        pools.append((cores, thread_pool(cores)))
        counts.append(available_cores())

    threads = [threading.Thread(target=create, args=(2 + i % 2,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(pool) for _, pool in pools}) == 2
    assert counts == [CORES] * 8
    assert torch.get_num_threads() == CORES
    assert in_new_thread(torch.get_num_threads) == CORES
    for _, pool in pools:
        assert pool.submit(torch.get_num_threads).result() == 1


def test_the_thread_count_is_restored_after_nested_contexts_and_errors() -> None:
    def fail() -> None:
        with torch_threads(2):
            with torch_threads(1):
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.get_num_threads() == CORES
    assert in_new_thread(torch.get_num_threads) == CORES


@pytest.mark.parametrize("first_out", ["main", "other"])
def test_overlapping_contexts_of_two_threads_restore_the_thread_count(first_out: str) -> None:
    """The other thread starts inside the context of the main thread, and so begins with its count."""
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    after: list[int] = []

    def other() -> None:
        with torch_threads(3):
            entered.set()
            leave.wait(timeout=60)
        after.append(torch.get_num_threads())
        left.set()

    thread = threading.Thread(target=other)
    with torch_threads(1):
        thread.start()
        entered.wait(timeout=60)
        if first_out == "other":
            leave.set()
            left.wait(timeout=60)
            assert after == [1], "the count of the context that is still open"
    assert torch.get_num_threads() == CORES
    leave.set()
    thread.join()
    assert torch.get_num_threads() == CORES
    assert in_new_thread(torch.get_num_threads) == CORES
