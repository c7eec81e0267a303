"""How much of everything the server takes, and who gets in: `Gate` counts images and bytes from door to answer."""

from asyncio import CancelledError
from dataclasses import dataclass

from vitkit.serve.errors import Refusal

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    body: int = 20 * MIB  # bytes of one request
    images: int = 64  # of one request
    pixels: int = 50_000_000  # of one image, as its header states them
    waiting: int = 256  # images between door and answer, over all requests; above: 429
    held: int = 256 * MIB  # bytes of their files; above: 429
    batch: int = 32  # images that the model takes at once
    wait_ms: float = 5.0  # that a batch waits for images which are being decoded
    deadline: float = 10.0  # seconds from the last byte of a request to its answer; above: 504
    upload: float = 30.0  # seconds that a body may take to arrive; above: 408
    decoders: int = 2  # processes
    decode_seconds: float = 5.0  # for one image; above: the process is replaced
    decode_memory: int = 1024 * MIB  # for one image
    explaining: int = 16  # explanations that wait or run; above: 429
    explain_deadline: float = 60.0
    attention: int = 16 * MIB  # of one answer; a larger matrix is given row by row
    connections: int = 1024
    headers: float = 5.0  # seconds for the head of a request, and for the next one on an open connection
    drain: int = 20  # seconds for what is under way after SIGTERM


class Gate:
    """One place for every image under way. Only the event loop's thread touches it."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.images, self.bytes = limits, 0, 0
        self.cut_off = 0  # requests that were ended before their answer

    def place(self) -> "Place":
        return Place(self)


class Place:
    """What one request occupies; leaving gives it back."""

    def __init__(self, gate: Gate) -> None:
        self.gate, self.images, self.bytes = gate, 0, 0

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.gate.cut_off += kind is CancelledError
        self.gate.images -= self.images
        self.gate.bytes -= self.bytes

    def take_image(self) -> None:
        if self.gate.images >= self.gate.limits.waiting:
            raise Refusal("overloaded", f"{self.gate.images} images are under way, as many as are taken at once")
        self.images += 1
        self.gate.images += 1

    def take_bytes(self, count: int) -> None:
        if self.gate.bytes + count > self.gate.limits.held:
            raise Refusal("overloaded", "the images under way fill the memory that is set aside for them")
        self.bytes += count
        self.gate.bytes += count
