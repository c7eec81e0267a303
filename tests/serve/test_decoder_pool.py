"""Decoders that crash, hang or exceed their memory are replaced, and their image gets an error."""

import os
import signal
import subprocess
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.serve.decoder_pool import DecoderPool
from vitkit.serve.errors import APIError
from vitkit.serve.limits import MIB, Limits

from .client import encoded, noise_png, wait_until

PREPROCESS = Preprocess(size=(32, 32))


class PoolUnderTest:
    def __init__(self) -> None:
        self.replaced = 0
        limits = Limits(decoders=1, decode_seconds=3.0, decode_memory=96 * MIB, image_pixels=40_000_000)
        self.pool = DecoderPool([PREPROCESS], limits, self.count)

    def count(self) -> None:
        self.replaced += 1

    def decode(self, content: bytes) -> np.ndarray:
        return self.pool.submit(0, content).result(60).pixels

    def child(self) -> psutil.Process:
        (child,) = psutil.Process(self.pool.fork_server.process.pid).children()
        return child


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


def test_a_decoder_that_crashes_is_replaced(watched: PoolUnderTest) -> None:
    before, child = watched.replaced, watched.child()
    child.suspend()  # so that the signal arrives during its work
    job = watched.pool.submit(0, noise_png())
    child.send_signal(signal.SIGSEGV)
    child.resume()
    with pytest.raises(APIError, match="crashed its decoder") as raised:
        job.result(60)
    assert raised.value.status == 422
    assert_works(watched)
    assert watched.replaced == before + 1
    assert watched.child().pid != child.pid


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
    child.kill()
    with pytest.raises(APIError):
        watched.decode(noise_png())
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
