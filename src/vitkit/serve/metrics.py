"""Prometheus metrics. Label values come from fixed sets, so memory is bounded."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
IMAGES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Registry(CollectorRegistry):
    """Leaves out the `_created` series. The library can only switch them off for the complete process."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Metrics:
    def __init__(self, queued_images: Callable[[], float], queued_bytes: Callable[[], float]) -> None:
        r = self.registry = _Registry()
        self.requests = Counter("vitkit_requests_total", "Requests answered.", ["path", "status"], registry=r)
        self.request_seconds = Histogram(
            "vitkit_request_seconds", "Time from the header of a request to its response.", ["path"],
            buckets=SECONDS, registry=r,
        )  # fmt: skip
        self.images = Counter("vitkit_images_total", "Images classified.", ["model"], registry=r)
        self.batch_images = Histogram("vitkit_batch_images", "Batch size.", ["model"], buckets=IMAGES, registry=r)
        self.batch_seconds = Histogram(
            "vitkit_batch_seconds", "Time of one forward pass.", ["model"], buckets=SECONDS, registry=r
        )
        self.decoders_replaced = Counter("vitkit_decoders_replaced_total", "Decoders killed or crashed.", registry=r)
        Gauge("vitkit_images_waiting", "Images in flight.", registry=r).set_function(queued_images)
        Gauge("vitkit_bytes_held", "Bytes of the images in flight.", registry=r).set_function(queued_bytes)

    def text(self) -> bytes:
        return generate_latest(self.registry)
