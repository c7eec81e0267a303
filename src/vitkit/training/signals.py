"""Handle SIGINT and SIGTERM during a run: the first asks it to save and stop, a second one ends it at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptHandler:
    """Records the first signal in `received`. The previous handlers are restored on exit."""

    def __init__(self) -> None:
        self.received = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python sets handlers only there
            self._previous = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
