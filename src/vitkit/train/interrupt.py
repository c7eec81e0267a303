"""SIGINT and SIGTERM ask a run to save and leave at its next step; a second one leaves at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from vitkit.errors import VitkitError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(VitkitError):
    """The run was asked to stop and has saved its state."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(f"interrupted; the state is saved, go on with --resume ({where})")
        self.exit_code = 128 + number


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
