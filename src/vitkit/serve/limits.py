"""Resource limits of the server, and admission control: `Admission` counts images and bytes in flight."""

from asyncio import CancelledError
from contextlib import AbstractContextManager
from dataclasses import dataclass

from vitkit.serve.errors import APIError

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    body_bytes: int = 20 * MIB  # of one request
    request_images: int = 64  # of one request
    image_pixels: int = 50_000_000  # of one image, as stated in its header
    queued_images: int = 256  # in flight over all requests; above: 429
    queued_bytes: int = 256 * MIB  # of their files; above: 429
    batch_size: int = 32
    batch_wait_ms: float = 5.0  # a batch waits this long for images that are being decoded
    deadline: float = 10.0  # seconds from the last byte of a request to its response; above: 504
    upload_seconds: float = 30.0  # for a body to arrive; above: 408
    decoders: int = 2  # processes
    decode_seconds: float = 5.0  # for one image; above: the process is replaced
    decode_memory: int = 1024 * MIB  # for one image
    decoder_images: int = 1000  # then the process is replaced
    dead_seconds: float = 30.0  # without a decoder, until the server reports that it is not alive
    failed_batches: int = 5  # in a row, until the server reports that it is not alive
    queued_explanations: int = 16  # waiting or running; above: 429
    explain_deadline: float = 60.0
    explain_memory: int = 2048 * MIB  # for the gradients of one explanation
    attention_bytes: int = 16 * MIB  # of one response; larger matrices are sent row by row
    connections: int = 1024
    header_seconds: float = 5.0  # for the header of a request, and between requests on a connection
    drain_seconds: int = 20  # for requests in flight after SIGTERM


class Admission:
    """Counts the images and bytes in flight. Used only by the thread of the event loop."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.images, self.bytes = limits, 0, 0
        self.aborted = 0  # requests that were cancelled before their response


class Ticket(AbstractContextManager["Ticket"]):
    """The share of one request in the totals. Leaving the context releases it."""

    def __init__(self, admission: Admission) -> None:
        self.admission, self.images, self.bytes = admission, 0, 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.admission.aborted += kind is CancelledError
        self.admission.images -= self.images
        self.admission.bytes -= self.bytes

    def add_image(self) -> None:
        if self.admission.images >= self.admission.limits.queued_images:
            raise APIError("overloaded", f"{self.admission.images} images are in progress, the maximum: retry later")
        self.images += 1
        self.admission.images += 1

    def add_bytes(self, count: int) -> None:
        if self.admission.bytes + count > self.admission.limits.queued_bytes:
            raise APIError("overloaded", "the images in progress use all memory reserved for uploads: retry later")
        self.bytes += count
        self.admission.bytes += count
