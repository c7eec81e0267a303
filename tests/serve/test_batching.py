import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest

from vitkit.serve.batching import Batcher


class Model:
    """Doubles its input; waits for leave where told, and remembers the sizes of its batches."""

    def __init__(self, held: bool = False) -> None:
        self.sizes: list[int] = []
        self.started, self.leave = threading.Event(), threading.Event()
        if not held:
            self.leave.set()

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.sizes.append(len(batch))
        self.started.set()
        assert self.leave.wait(30)
        return 2 * batch


def submit(batcher: Batcher, count: int) -> "list[Future[np.ndarray]]":
    return [batcher.submit(np.array([i])) for i in range(count)]


def test_what_waits_while_the_model_works_goes_through_together_and_comes_back_to_its_sender() -> None:
    model = Model(held=True)
    batcher = Batcher(model, size=8, wait=0.0)
    first = batcher.submit(np.array([100]))
    assert model.started.wait(30)
    others = submit(batcher, 11)
    model.leave.set()
    assert first.result(30) == [200]
    assert [int(other.result(30)[0]) for other in others] == [2 * i for i in range(11)]
    assert model.sizes == [1, 8, 3]
    batcher.close()


def test_a_lone_image_does_not_wait_for_company() -> None:
    batcher = Batcher(Model(), size=8, wait=60.0, coming=lambda: 0)
    started = time.monotonic()
    assert batcher.submit(np.array([1])).result(30) == [2]
    assert time.monotonic() - started < 20
    batcher.close()


def test_a_batch_waits_for_what_is_coming_until_it_is_full() -> None:
    model = Model()
    batcher = Batcher(model, size=3, wait=60.0, coming=lambda: 1)
    answers = submit(batcher, 2)
    time.sleep(0.1)
    assert model.sizes == []
    answers.append(batcher.submit(np.array([2])))
    assert [int(a.result(30)[0]) for a in answers] == [0, 2, 4]
    assert model.sizes == [3]
    batcher.close()


def test_a_batch_does_not_wait_longer_than_it_is_told() -> None:
    batcher = Batcher(Model(), size=3, wait=0.05, coming=lambda: 1)
    assert batcher.submit(np.array([1])).result(30) == [2]
    batcher.close()


def test_answers_that_nobody_waits_for_are_not_computed() -> None:
    model = Model(held=True)
    batcher = Batcher(model, size=8, wait=0.0)
    first = batcher.submit(np.array([0]))
    assert model.started.wait(30)
    gone, kept = submit(batcher, 2)
    assert gone.cancel()
    model.leave.set()
    assert kept.result(30) == [2]
    assert first.done()
    assert model.sizes == [1, 1]
    batcher.close()


def test_an_error_of_the_model_reaches_all_of_its_batch_and_the_next_batch_is_fine() -> None:
    def sometimes(batch: np.ndarray) -> np.ndarray:
        if batch[0, 0] == 7:
            raise RuntimeError("seven")
        return batch

    batcher = Batcher(sometimes, size=1, wait=0.0)
    with pytest.raises(RuntimeError, match="seven"):
        batcher.submit(np.array([7])).result(30)
    assert batcher.submit(np.array([8])).result(30) == [8]
    batcher.close()


def test_closing_answers_what_is_in_the_queue_and_takes_no_more() -> None:
    model = Model(held=True)
    batcher = Batcher(model, size=2, wait=0.0)
    answers = submit(batcher, 5)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    model.leave.set()
    closing.join(30)
    assert [int(a.result(0)[0]) for a in answers] == [0, 2, 4, 6, 8]
    assert batcher.submit(np.array([1])).cancelled()
