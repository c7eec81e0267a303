"""Images of many requests through the model together. One thread owns the model's forward.

A batch starts when it is full, when nothing else is on its way, or when its first image has waited long enough: a lone
request does not wait for company that is not coming.
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
    answer: "Future[np.ndarray]" = field(default_factory=Future)
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """`run` is called with (B, H, W, C) from its thread; `submit` gives a row of what it returns."""

    def __init__(
        self,
        run: Callable[[np.ndarray], np.ndarray],
        size: int,
        wait: float,
        coming: Callable[[], int] = lambda: 0,
        observe: Callable[[int, float], None] = lambda images, seconds: None,
    ) -> None:
        """`coming`: how many images may still arrive soon. `observe`: told of every batch and its seconds."""
        self.run, self.size, self.wait, self.coming, self.observe = run, size, wait, coming, observe
        self.items: deque[_Item] = deque()
        self.changed = threading.Condition()
        self.closed = False
        self.thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self.thread.start()

    def submit(self, pixels: np.ndarray) -> "Future[np.ndarray]":
        """An answer that is cancelled before its batch starts costs nothing more."""
        item = _Item(pixels)
        with self.changed:
            if self.closed:
                item.answer.cancel()
                return item.answer
            self.items.append(item)
            self.changed.notify()
        return item.answer

    def waiting(self) -> int:
        return len(self.items)

    def close(self) -> None:
        """What is in the queue is still answered."""
        with self.changed:
            self.closed = True
            self.changed.notify()
        self.thread.join()

    def _work(self) -> None:
        while batch := self._next():
            started = time.monotonic()
            try:
                rows = self.run(np.stack([item.pixels for item in batch]))
            except Exception as error:
                for item in batch:
                    item.answer.set_exception(error)
            else:
                for item, row in zip(batch, rows, strict=True):
                    item.answer.set_result(row)
            self.observe(len(batch), time.monotonic() - started)

    def _next(self) -> list[_Item]:
        """The next batch; empty only when the work is over."""
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.items or self.closed)
                if not self.items:
                    return []
                self._gather(self.items[0].arrived + self.wait)
                taken = [self.items.popleft() for _ in range(min(self.size, len(self.items)))]
            batch = [item for item in taken if item.answer.set_running_or_notify_cancel()]
            if batch:
                return batch

    def _gather(self, until: float) -> None:
        while len(self.items) < self.size and self.coming() > 0 and not self.closed:
            if not self.changed.wait(until - time.monotonic()):
                return
