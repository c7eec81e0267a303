"""Everything behind the HTTP endpoints: models and their batchers, decoders, the explanation thread, deadlines."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from vitkit.model import ViT
from vitkit.serve.batching import Batcher
from vitkit.serve.decoder_pool import Decoded, DecoderPool
from vitkit.serve.errors import APIError
from vitkit.serve.limits import Admission, Limits
from vitkit.serve.metrics import Metrics
from vitkit.serve.model_registry import ServedModel

T = TypeVar("T")


class InferenceService:
    """Runs as a context manager. Explanations have their own thread, so a slow one does not delay predictions."""

    def __init__(self, models: Mapping[str, ServedModel], limits: Limits, samples: Mapping[str, bytes]) -> None:
        self.models, self.limits, self.samples = dict(models), limits, dict(samples)
        self.admission = Admission(limits)
        self.metrics = Metrics(lambda: self.admission.images, lambda: self.admission.bytes)
        self.decoding = dict.fromkeys(self.models, 0)
        self.explanations: list[Future[Any]] = []  # waiting or running, perhaps for a client that has given up
        self.ready = False

    def __enter__(self) -> Self:
        for model in self.models.values():  # first: if this fails, no thread or process has been started
            model.predictor.warm_up()
        self.decoders = DecoderPool(
            [m.predictor.preprocess for m in self.models.values()], self.limits, self.metrics.decoders_replaced.inc
        )
        self.explain_executor = ThreadPoolExecutor(1, thread_name_prefix="explain")
        self.batchers = {
            name: Batcher(
                model.predictor.predict_probabilities, self.limits.batch_size, self.limits.batch_wait_ms / 1000,
                pending=partial(self.decoding.__getitem__, name), observe=partial(self._observe_batch, name),
            )
            for name, model in self.models.items()
        }  # fmt: skip
        self.ready = True
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the work that has started, then stop all threads and processes."""
        self.ready = False
        for batcher in self.batchers.values():
            batcher.close()
        self.explain_executor.shutdown(cancel_futures=True)
        self.decoders.close()

    def is_ready(self) -> bool:
        """Return whether images can be decoded and classified now."""
        return self.ready and self.is_alive() and self.decoders.working > 0

    def is_alive(self) -> bool:
        """Return whether the server works or may recover without a restart.

        A model whose batches all fail gets a blank image at each check, so that recovery does not depend on requests.
        """
        if not self.ready:  # starting or stopping
            return True
        failing = [name for name, b in self.batchers.items() if b.failures >= self.limits.failed_batches]
        for name in failing:
            if not self.batchers[name].items:
                preprocess = self.models[name].predictor.preprocess
                self.batchers[name].submit(np.zeros((*preprocess.size, preprocess.channels), np.uint8))
        threads = [*self.decoders.threads, *(b.thread for b in self.batchers.values())]
        decodes = self.decoders.seconds_without() < self.limits.dead_seconds
        return not failing and decodes and all(thread.is_alive() for thread in threads)

    def model(self, name: str | None) -> ServedModel:
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise APIError("unknown_model", f"no model named {name[:50]!r} is served: GET /v1/models lists them")
        return self.models[name]

    def explainable(self, name: str | None) -> tuple[ServedModel, ViT]:
        served = self.model(name)
        if served.predictor.model is None:
            raise APIError("cannot_explain", f"{served.name} is an exported model, which has no explanations")
        return served, served.predictor.model

    async def decode(self, served: ServedModel, encoded: bytes, until: float) -> Decoded:
        self.decoding[served.name] += 1
        try:
            index = list(self.models).index(served.name)
            return await _before(until, self.decoders.submit(index, encoded))
        finally:
            self.decoding[served.name] -= 1

    async def probabilities(self, served: ServedModel, pixels: np.ndarray, until: float) -> np.ndarray:
        """Return one probability per class."""
        return await _before(until, self.batchers[served.name].submit(pixels))

    async def explain(self, work: Callable[[], T], until: float) -> T:
        """Run `work` in the thread for explanations."""
        self.explanations = [job for job in self.explanations if not job.done()]
        if (count := len(self.explanations)) >= self.limits.queued_explanations:
            raise APIError("overloaded", f"{count} explanations are in progress, the maximum: retry later")
        job = self.explain_executor.submit(work)
        self.explanations.append(job)
        return await _before(until, job)

    def _observe_batch(self, name: str, images: int, seconds: float) -> None:
        self.metrics.images.labels(name).inc(images)
        self.metrics.batch_images.labels(name).observe(images)
        self.metrics.batch_seconds.labels(name).observe(seconds)


def deadline(seconds: float) -> float:
    """Return the time of the event loop in `seconds` from now."""
    return asyncio.get_running_loop().time() + seconds


async def _before(until: float, job: "Future[T]") -> T:
    """Return the result of the job, or cancel it if it has not started by the deadline."""
    try:
        async with asyncio.timeout_at(until):
            return await asyncio.wrap_future(job)
    except TimeoutError:
        raise APIError("too_late", "the response was not ready before the deadline") from None
    except asyncio.CancelledError:
        if job.cancelled():
            raise APIError("stopping", "the server is stopping") from None
        raise
