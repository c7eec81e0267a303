"""Decoders that crash, hang or want too much: killed, replaced, and the image refused."""

import os
import signal
import subprocess
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from vitkit.data.preprocess import Preprocess
from vitkit.serve.decoder_pool import Decoders
from vitkit.serve.errors import Refusal
from vitkit.serve.limits import MIB, Limits

from .client import encoded, picture, until

PREPROCESS = Preprocess(size=(32, 32))


class Watched:
    def __init__(self) -> None:
        self.replaced = 0
        limits = Limits(decoders=1, decode_seconds=3.0, decode_memory=96 * MIB, pixels=40_000_000)
        self.decoders = Decoders([PREPROCESS], limits, self.count)

    def count(self) -> None:
        self.replaced += 1

    def decode(self, content: bytes) -> np.ndarray:
        return self.decoders.submit(0, content).result(60).pixels

    def child(self) -> psutil.Process:
        (child,) = psutil.Process(self.decoders.nursery.process.pid).children()
        return child


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.decoders.close()


def works(watched: Watched) -> None:
    content = picture(seed=5)
    assert np.array_equal(watched.decode(content), PREPROCESS.array(content))


def test_pixels_are_those_of_preprocessing_and_the_originals_size_comes_along(watched: Watched) -> None:
    works(watched)
    assert watched.decoders.submit(0, picture(20, 30)).result(60).original == (20, 30)


def test_a_decoder_that_crashes_is_replaced(watched: Watched) -> None:
    before, child = watched.replaced, watched.child()
    child.suspend()  # so that it is killed in the middle of its work
    job = watched.decoders.submit(0, picture())
    child.send_signal(signal.SIGSEGV)
    child.resume()
    with pytest.raises(Refusal, match="broke its decoder") as refused:
        job.result(60)
    assert refused.value.status == 422
    works(watched)
    assert watched.replaced == before + 1
    assert watched.child().pid != child.pid


def test_a_decoder_that_hangs_is_killed_and_replaced(watched: Watched) -> None:
    child = watched.child()
    child.suspend()
    with pytest.raises(Refusal, match="more than 3 s") as refused:
        watched.decode(picture())
    assert (refused.value.status, refused.value.code) == (422, "decoding_limit")
    works(watched)
    until(lambda: not child.is_running())


def test_an_image_that_wants_more_memory_than_it_is_given_is_refused(watched: Watched) -> None:
    """36 million pixels are within the limit, and 108 MB of them are not."""
    with pytest.raises(Refusal, match="memory") as refused:
        watched.decode(encoded(np.zeros((6000, 6000, 3), np.uint8)))
    assert refused.value.code == "decoding_limit"
    works(watched)


def test_a_nursery_that_dies_is_started_again(watched: Watched) -> None:
    old, child = watched.decoders.nursery.process, watched.child()
    old.kill()
    old.wait()
    child.kill()
    with pytest.raises(Refusal):
        watched.decode(picture())
    works(watched)
    assert watched.decoders.nursery.process.pid != old.pid


def test_nothing_is_left_behind() -> None:
    watched = Watched()
    works(watched)
    processes = [psutil.Process(watched.decoders.nursery.process.pid), watched.child()]
    watched.child().suspend()  # even a decoder that no longer listens
    watched.decoders.close()
    until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes))
    assert isinstance(watched.decoders.nursery.process, subprocess.Popen)
    assert not os.path.exists(f"/proc/{processes[1].pid}")
