"""SIGINT and SIGTERM ask a run to save and leave at its next step; a second one leaves at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # only there may handlers be set
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
