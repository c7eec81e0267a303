import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

from vitkit.serve.batching import Batcher


class Model:
    """Doubles its input, waits for `release` if held, and records its batch sizes."""

    def __init__(self, held: bool = False) -> None:
        self.batch_sizes: list[int] = []
        self.started, self.release = threading.Event(), threading.Event()
        if not held:
            self.release.set()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.batch_sizes.append(len(batch))
        self.started.set()
        assert self.release.wait(30)
        return 2 * batch


def submit(batcher: Batcher, count: int) -> "list[Future[np.ndarray]]":
    return [batcher.submit(np.array([i])) for i in range(count)]


def test_images_queued_during_a_forward_pass_are_batched_and_results_return_to_their_requests() -> None:
    model = Model(held=True)
    batcher = Batcher(model, batch_size=8, wait=0.0)
    first = batcher.submit(np.array([100]))
    assert model.started.wait(30)
    others = submit(batcher, 11)
    model.release.set()
    assert first.result(30) == [200]
    assert [int(other.result(30)[0]) for other in others] == [2 * i for i in range(11)]
    assert model.batch_sizes == [1, 8, 3]
    batcher.close()


def test_a_single_image_does_not_wait_for_others() -> None:
    batcher = Batcher(Model(), batch_size=8, wait=60.0, pending=lambda: 0)
    started = time.monotonic()
    assert batcher.submit(np.array([1])).result(30) == [2]
    assert time.monotonic() - started < 20
    batcher.close()


def test_a_batch_waits_for_pending_images_until_it_is_full() -> None:
    model = Model()
    batcher = Batcher(model, batch_size=3, wait=60.0, pending=lambda: 1)
    results = submit(batcher, 2)
    time.sleep(0.1)
    assert model.batch_sizes == []
    results.append(batcher.submit(np.array([2])))
    assert [int(a.result(30)[0]) for a in results] == [0, 2, 4]
    assert model.batch_sizes == [3]
    batcher.close()


def test_a_batch_waits_no_longer_than_the_limit() -> None:
    batcher = Batcher(Model(), batch_size=3, wait=0.05, pending=lambda: 1)
    assert batcher.submit(np.array([1])).result(30) == [2]
    batcher.close()


def test_cancelled_images_are_skipped() -> None:
    model = Model(held=True)
    batcher = Batcher(model, batch_size=8, wait=0.0)
    first = batcher.submit(np.array([0]))
    assert model.started.wait(30)
    gone, kept = submit(batcher, 2)
    assert gone.cancel()
    model.release.set()
    assert kept.result(30) == [2]
    assert first.done()
    assert model.batch_sizes == [1, 1]
    batcher.close()


def test_an_error_of_the_model_reaches_its_batch_only() -> None:
    def sometimes(batch: np.ndarray) -> np.ndarray:
        if batch[0, 0] == 7:
            raise RuntimeError("seven")
        return batch

    batcher = Batcher(sometimes, batch_size=1, wait=0.0)
    with pytest.raises(RuntimeError, match="seven"):
        batcher.submit(np.array([7])).result(30)
    assert batcher.submit(np.array([8])).result(30) == [8]
    batcher.close()


def test_closing_finishes_the_queue_and_rejects_new_images() -> None:
    model = Model(held=True)
    batcher = Batcher(model, batch_size=2, wait=0.0)
    results = submit(batcher, 5)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    model.release.set()
    closing.join(30)
    assert [int(a.result(0)[0]) for a in results] == [0, 2, 4, 6, 8]
    assert batcher.submit(np.array([1])).cancelled()
