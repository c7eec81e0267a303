"""Deadlines, the queue of explanations, and readiness."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from vitkit.serve.errors import APIError
from vitkit.serve.limits import Limits
from vitkit.serve.model_registry import load_models
from vitkit.serve.service import InferenceService, deadline

from .client import no_descriptors, noise_png, wait_until


@pytest.fixture
def service(folders: tuple[Path, Path]) -> Iterator[InferenceService]:
    with InferenceService(load_models([str(folders[0])]), Limits(decoders=1, queued_explanations=1), {}) as found:
        yield found


def test_an_image_is_decoded_and_classified(service: InferenceService) -> None:
    async def run() -> np.ndarray:
        served, until = service.model(None), deadline(60)
        decoded = await service.decode(served, noise_png(), until)
        return await service.probabilities(served, decoded.pixels, until)

    assert asyncio.run(run()).sum() == pytest.approx(1, abs=1e-5)
    wait_until(lambda: b'vitkit_images_total{model="pets"} 1.0' in service.metrics.text())
    with pytest.raises(APIError, match="no model named 'others' is served"):
        service.model("others")


def test_an_explanation_keeps_its_slot_until_it_ends_even_if_its_client_gave_up(service: InferenceService) -> None:
    release = threading.Event()

    async def run() -> None:
        with pytest.raises(APIError, match="deadline"):
            await service.explain(release.wait, deadline(0.05))
        with pytest.raises(APIError, match="1 explanations are in progress") as full:
            await service.explain(release.wait, deadline(60))
        assert full.value.status == 429
        release.set()
        while not service.explanations[0].done():
            await asyncio.sleep(0.01)
        assert await service.explain(lambda: 3, deadline(60)) == 3

    asyncio.run(run())


def test_a_service_is_ready_while_its_threads_live(folders: tuple[Path, Path]) -> None:
    service = InferenceService(load_models([str(folders[0])]), Limits(decoders=1), {})
    assert not service.is_ready()
    with service:
        assert service.is_ready()
        service.batchers["pets"].close()
        wait_until(lambda: not service.is_ready())


def test_inference_that_always_fails_is_reported_and_recovers_without_requests(service: InferenceService) -> None:
    works, pixels = service.batchers["pets"].run, np.zeros((32, 32, 3), np.uint8)

    def fails(batch: np.ndarray) -> np.ndarray:
        raise RuntimeError("no memory for the scores")

    service.batchers["pets"].run = fails
    for _ in range(service.limits.failed_batches):
        assert service.is_alive()
        with pytest.raises(RuntimeError):
            service.batchers["pets"].submit(pixels).result(60)
    assert not service.is_alive()
    assert not service.is_ready()
    service.batchers["pets"].run = works
    wait_until(service.is_ready)  # each check tries a blank image
    assert service.is_alive()


def test_a_service_without_decoders_is_not_ready_and_after_a_while_not_alive(folders: tuple[Path, Path]) -> None:
    limits = Limits(decoders=1, dead_seconds=0.5)
    with InferenceService(load_models([str(folders[0])]), limits, {}) as service:
        (child,) = psutil.Process(service.decoders.fork_server.process.pid).children()
        with no_descriptors():
            os.kill(child.pid, signal.SIGKILL)
            with pytest.raises(APIError, match="no image decoder"):
                service.decoders.submit(0, noise_png()).result(60)
            wait_until(lambda: not service.is_ready())
            assert service.is_alive()
            wait_until(lambda: not service.is_alive(), 10)
        wait_until(service.is_ready, 10)
        assert service.is_alive()
