"""Decoders that crash, hang or exceed their memory are replaced, as soon as the system allows it."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.serve.decoder_pool import _ENVIRONMENT, DecoderPool
from vitkit.serve.errors import APIError
from vitkit.serve.limits import MIB, Limits

from .client import encoded, no_descriptors, noise_png, wait_until

PREPROCESS = Preprocess(size=(32, 32))


class PoolUnderTest:
    def __init__(self, **changes: int) -> None:
        self.replaced = 0
        limits = Limits(decoders=1, decode_seconds=3.0, decode_memory=96 * MIB, image_pixels=40_000_000, **changes)
        self.pool = DecoderPool([PREPROCESS], limits, self.count)

    def count(self) -> None:
        self.replaced += 1

    def decode(self, content: bytes) -> np.ndarray:
        return self.pool.submit(0, content).result(60).pixels

    def child(self) -> psutil.Process:
        """Return the decoder. For a moment after a replacement there are two."""
        while len(found := psutil.Process(self.pool.fork_server.process.pid).children()) != 1:
            time.sleep(0.01)
        return found[0]


@pytest.fixture(scope="module")
def watched() -> Iterator[PoolUnderTest]:
    found = PoolUnderTest()
    yield found
    found.pool.close()


def assert_works(watched: PoolUnderTest) -> None:
    content = noise_png(seed=5)
    assert np.array_equal(watched.decode(content), PREPROCESS.array(content))


def test_pixels_equal_those_of_preprocessing_and_the_original_size_is_returned(watched: PoolUnderTest) -> None:
    assert_works(watched)
    assert watched.pool.submit(0, noise_png(20, 30)).result(60).original_size == (20, 30)


def test_an_image_that_meets_a_dead_decoder_is_decoded_by_a_new_one(watched: PoolUnderTest) -> None:
    before, child = watched.replaced, watched.child()
    child.kill()
    assert_works(watched)
    assert watched.replaced == before + 1
    assert watched.child().pid != child.pid


def test_an_image_that_crashes_two_decoders_is_an_error(
    watched: PoolUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, start = watched.replaced, watched.pool.fork_server.start

    def start_and_kill() -> object:
        started = start()
        os.kill(started.pid, signal.SIGSEGV)
        return started

    watched.child().kill()
    with monkeypatch.context() as patch:
        patch.setattr(watched.pool.fork_server, "start", start_and_kill)
        with pytest.raises(APIError, match="crashed two decoders") as raised:
            watched.decode(noise_png())
    assert raised.value.status == 422
    assert_works(watched)
    assert watched.replaced == before + 3  # two for the image, one for the dead decoder that it left


def test_without_descriptors_images_get_503_and_decoders_return_by_themselves(watched: PoolUnderTest) -> None:
    child, pool = watched.child(), watched.pool
    with no_descriptors():
        os.kill(child.pid, signal.SIGKILL)
        for _ in range(3):
            with pytest.raises(APIError, match="no image decoder can be started") as raised:
                watched.decode(noise_png())
            assert (raised.value.status, raised.value.code) == (503, "unavailable")
        wait_until(lambda: pool.working == 0)
        time.sleep(0.5)
        assert 0.4 < pool.seconds_without() < 60
    wait_until(lambda: pool.working == 1, 10)
    assert_works(watched)
    assert pool.seconds_without() == 0
    assert all(thread.is_alive() for thread in pool.threads)


def test_images_that_wait_for_a_decoder_get_503_if_there_will_be_none(watched: PoolUnderTest) -> None:
    child = watched.child()
    child.suspend()
    waiting = [watched.pool.submit(0, noise_png(seed=seed)) for seed in range(4)]
    with no_descriptors():
        os.kill(child.pid, signal.SIGKILL)
        for job in waiting:
            with pytest.raises(APIError, match="no image decoder"):
                job.result(60)
    wait_until(lambda: watched.pool.working == 1, 10)
    assert_works(watched)


def test_a_pool_without_decoders_can_be_closed() -> None:
    watched = PoolUnderTest()
    child = watched.child()
    with no_descriptors():
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(APIError):
            watched.decode(noise_png())
        watched.pool.close()
    assert not any(thread.is_alive() for thread in watched.pool.threads)


def test_decoders_are_replaced_after_a_number_of_images() -> None:
    watched = PoolUnderTest(decoder_images=3)
    first = watched.child().pid
    for _ in range(3):
        assert watched.child().pid == first
        assert_works(watched)
    wait_until(lambda: watched.child().pid != first)
    assert watched.replaced == 0  # none crashed
    assert_works(watched)
    watched.pool.close()


def test_decoders_do_not_inherit_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITKIT_TOKEN", "a-secret-of-the-server")
    watched = PoolUnderTest()
    for process in (watched.child(), psutil.Process(watched.pool.fork_server.process.pid)):
        assert "VITKIT_TOKEN" not in process.environ()
        assert set(process.environ()) <= {*_ENVIRONMENT, "PYTHONPATH"}
    watched.pool.close()


def test_a_decoder_that_hangs_is_killed_and_replaced(watched: PoolUnderTest) -> None:
    child = watched.child()
    child.suspend()
    with pytest.raises(APIError, match="more than 3 s") as raised:
        watched.decode(noise_png())
    assert (raised.value.status, raised.value.code) == (422, "decoding_limit")
    assert_works(watched)
    wait_until(lambda: not child.is_running())


def test_an_image_that_exceeds_the_memory_limit_is_an_error(watched: PoolUnderTest) -> None:
    """36 million pixels are within the pixel limit, but their 108 MB are not within the memory limit."""
    with pytest.raises(APIError, match="memory") as raised:
        watched.decode(encoded(np.zeros((6000, 6000, 3), np.uint8)))
    assert raised.value.code == "decoding_limit"
    assert_works(watched)


def test_a_fork_server_that_dies_is_restarted(watched: PoolUnderTest) -> None:
    old, child = watched.pool.fork_server.process, watched.child()
    old.kill()
    old.wait()
    wait_until(lambda: not child.is_running())  # decoders do not outlive it
    assert_works(watched)
    assert watched.pool.fork_server.process.pid != old.pid


def test_closing_ends_all_processes() -> None:
    watched = PoolUnderTest()
    assert_works(watched)
    processes = [psutil.Process(watched.pool.fork_server.process.pid), watched.child()]
    watched.child().suspend()  # a decoder that no longer responds
    watched.pool.close()
    wait_until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes))
    assert isinstance(watched.pool.fork_server.process, subprocess.Popen)
    assert not os.path.exists(f"/proc/{processes[1].pid}")
