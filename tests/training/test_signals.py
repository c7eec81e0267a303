import os
import signal
import threading
from pathlib import Path

from tests.training.small import run
from vitkit.training import Result
from vitkit.training.signals import InterruptHandler


def test_handlers_are_restored_after_a_run(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(tmp_path / "run")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_run_works_in_a_thread_without_signal_handlers(tmp_path: Path) -> None:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(run(tmp_path / "run")))
    thread.start()
    thread.join()
    assert results[0].steps == 7


def test_the_second_signal_has_its_default_effect() -> None:
    with InterruptHandler() as interrupts:
        assert interrupts.received == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.received == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is not interrupts._handle
