"""What stands behind the endpoints: models and their batchers, decoders, the lane for explanations, deadlines."""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Self, TypeVar

import numpy as np

from vitkit.model import ViT
from vitkit.serve.batching import Batcher
from vitkit.serve.decoder_pool import Decoded, Decoders
from vitkit.serve.errors import Refusal
from vitkit.serve.limits import Gate, Limits
from vitkit.serve.metrics import Metrics
from vitkit.serve.models import Served

T = TypeVar("T")


class House:
    """Open as a context. Predictions and explanations run in threads of their own: a slow explanation delays no
    prediction."""

    def __init__(self, models: Mapping[str, Served], limits: Limits, samples: Mapping[str, bytes]) -> None:
        self.models, self.limits, self.samples = dict(models), limits, dict(samples)
        self.gate = Gate(limits)
        self.metrics = Metrics(lambda: self.gate.images, lambda: self.gate.bytes)
        self.decoding = dict.fromkeys(self.models, 0)
        self.explaining = 0
        self.ready = False

    def __enter__(self) -> Self:
        for model in self.models.values():  # first: where it fails, nothing else is under way
            model.predictor.warm_up()
        self.decoders = Decoders(
            [m.predictor.preprocess for m in self.models.values()], self.limits, self.metrics.replaced.add
        )
        self.lane = ThreadPoolExecutor(1, thread_name_prefix="explain")
        self.batchers = {
            name: Batcher(
                model.predictor.scores, self.limits.batch, self.limits.wait_ms / 1000,
                coming=partial(self.decoding.__getitem__, name), observe=partial(self._observe, name),
            )
            for name, model in self.models.items()
        }  # fmt: skip
        self.ready = True
        return self

    def __exit__(self, *_: object) -> None:
        """What has begun is finished first."""
        self.ready = False
        for batcher in self.batchers.values():
            batcher.close()
        self.lane.shutdown(cancel_futures=True)
        self.decoders.close()

    def is_ready(self) -> bool:
        return self.ready and all(t.is_alive() for t in self.decoders.threads) and all(
            b.thread.is_alive() for b in self.batchers.values()
        )  # fmt: skip

    def model(self, name: str | None) -> Served:
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise Refusal("unknown_model", f"no model {name[:50]!r} is served: GET /v1/models lists them")
        return self.models[name]

    def explainable(self, name: str | None) -> tuple[Served, ViT]:
        served = self.model(name)
        if served.predictor.model is None:
            raise Refusal("cannot_explain", f"{served.name} is an export: it shows no attention")
        return served, served.predictor.model

    async def decode(self, served: Served, encoded: bytes, until: float) -> Decoded:
        self.decoding[served.name] += 1
        try:
            which = list(self.models).index(served.name)
            return await _before(until, self.decoders.submit(which, encoded))
        finally:
            self.decoding[served.name] -= 1

    async def scores(self, served: Served, pixels: np.ndarray, until: float) -> np.ndarray:
        """(K,) probabilities."""
        return await _before(until, self.batchers[served.name].submit(pixels))

    async def explain(self, work: Callable[[], T], until: float) -> T:
        if self.explaining >= self.limits.explaining:
            raise Refusal("overloaded", f"{self.explaining} explanations are under way, as many as are taken at once")
        self.explaining += 1
        job = self.lane.submit(work)
        job.add_done_callback(partial(self._explained, asyncio.get_running_loop()))
        return await _before(until, job)

    def _explained(self, loop: asyncio.AbstractEventLoop, job: "Future") -> None:
        """A place is free when the work is over, not when its client has given up."""
        with suppress(RuntimeError):  # the server has stopped: nobody waits for a place
            loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self.explaining -= 1

    def _observe(self, name: str, images: int, seconds: float) -> None:
        self.metrics.images.add(name, by=images)
        self.metrics.batches.observe(images, name)
        self.metrics.forward.observe(seconds, name)


def deadline(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


async def _before(until: float, job: "Future[T]") -> T:
    """The job's result; it is cancelled if it has not begun by the deadline."""
    try:
        async with asyncio.timeout_at(until):
            return await asyncio.wrap_future(job)
    except TimeoutError:
        raise Refusal("too_late", "the answer was not ready before the deadline") from None
    except asyncio.CancelledError:
        if job.cancelled():
            raise Refusal("stopping", "the server is stopping") from None
        raise
