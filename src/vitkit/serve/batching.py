"""Dynamic batching: images of concurrent requests share a forward pass, which runs in one thread per model.

A batch starts when it is full, when no other image is being decoded, or when its first image has waited long enough.
A single request therefore never waits for others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class _Item:
    pixels: np.ndarray
    result: "Future[np.ndarray]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """Calls `run` with (B, H, W, C) in its own thread. `submit` returns a future of one row of the result."""

    def __init__(
        self,
        run: Callable[[np.ndarray], np.ndarray],
        batch_size: int,
        wait: float,
        pending: Callable[[], int] = lambda: 0,
        observe: Callable[[int, float], None] = lambda images, seconds: None,
    ) -> None:
        """`pending` returns how many images may arrive soon. `observe` gets the size and seconds of every batch."""
        self.run, self.batch_size, self.wait, self.pending, self.observe = run, batch_size, wait, pending, observe
        self.items: deque[_Item] = deque()
        self.changed = threading.Condition()
        self.closed = False
        self.failures = 0  # batches in a row
        self.thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self.thread.start()

    def submit(self, pixels: np.ndarray) -> "Future[np.ndarray]":
        """Queue an image. A future that is cancelled before its batch starts is skipped."""
        item = _Item(pixels)
        with self.changed:
            if self.closed:
                item.result.cancel()
                return item.result
            self.items.append(item)
            self.changed.notify()
        return item.result

    def close(self) -> None:
        """Finish the queued images, then stop the thread."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            started = time.monotonic()
            try:
                rows = self.run(np.stack([item.pixels for item in batch]))
            except Exception as error:
                self.failures += 1
                for item in batch:
                    item.result.set_exception(error)
            else:
                self.failures = 0
                for item, row in zip(batch, rows, strict=True):
                    item.result.set_result(row)
            self.observe(len(batch), time.monotonic() - started)

    def _next_batch(self) -> list[_Item]:
        """Wait for the next batch. It is empty only after `close`."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.items or self.closed)
                if not self.items:
                    return []
                self._fill(self.items[0].arrived + self.wait)
                taken = [self.items.popleft() for _ in range(min(self.batch_size, len(self.items)))]
            batch = [item for item in taken if item.result.set_running_or_notify_cancel()]
            if batch:
                return batch

    def _fill(self, until: float) -> None:
        while len(self.items) < self.batch_size and self.pending() > 0 and not self.closed:
            if not self.changed.wait(until - time.monotonic()):
                return
