"""Counts and times as Prometheus reads them (text format 0.0.4). Labels come from fixed sets: memory is bounded."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
IMAGES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class Counter:
    kind = "counter"

    def __init__(self, name: str, about: str, *labels: str) -> None:
        self.name, self.about, self.labels = name, about, labels
        self.values: dict[Labels, float] = {} if labels else {(): 0.0}
        self.lock = threading.Lock()

    def add(self, *labels: str, by: float = 1.0) -> None:
        with self.lock:
            self.values[labels] = self.values.get(labels, 0.0) + by

    def lines(self) -> list[str]:
        with self.lock:
            return [f"{self.name}{_braces(self.labels, key)} {value:g}" for key, value in sorted(self.values.items())]


class Gauge:
    kind = "gauge"

    def __init__(self, name: str, about: str, read: Callable[[], float]) -> None:
        self.name, self.about, self.read = name, about, read

    def lines(self) -> list[str]:
        return [f"{self.name} {self.read():g}"]


class Histogram:
    kind = "histogram"

    def __init__(self, name: str, about: str, bounds: Sequence[float], *labels: str) -> None:
        self.name, self.about, self.bounds, self.labels = name, about, tuple(bounds), labels
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}
        self.lock = threading.Lock()

    def observe(self, value: float, *labels: str) -> None:
        with self.lock:
            counts = self.counts.setdefault(labels, [0] * (len(self.bounds) + 1))
            counts[bisect_left(self.bounds, value)] += 1
            self.sums[labels] = self.sums.get(labels, 0.0) + value

    def lines(self) -> list[str]:
        with self.lock:
            return [line for key in sorted(self.counts) for line in self._of(key)]

    def _of(self, key: Labels) -> list[str]:
        lines, total = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts[key], strict=True):
            total += count
            lines.append(f"{self.name}_bucket{_braces((*self.labels, 'le'), (*key, bound))} {total}")
        braces = _braces(self.labels, key)
        return [*lines, f"{self.name}_sum{braces} {self.sums[key]:.9g}", f"{self.name}_count{braces} {total}"]


class Metrics:
    def __init__(self, images_waiting: Callable[[], float], bytes_held: Callable[[], float]) -> None:
        self.requests = Counter("vitkit_requests_total", "Requests answered.", "path", "status")
        self.seconds = Histogram("vitkit_request_seconds", "From head to answer.", SECONDS, "path")
        self.images = Counter("vitkit_images_total", "Images through the model.", "model")
        self.batches = Histogram("vitkit_batch_images", "Images per forward.", IMAGES, "model")
        self.forward = Histogram("vitkit_batch_seconds", "Of one forward.", SECONDS, "model")
        self.replaced = Counter("vitkit_decoders_replaced_total", "Decoding processes that were killed or died.")
        self.waiting = Gauge("vitkit_images_waiting", "Images between door and answer.", images_waiting)
        self.held = Gauge("vitkit_bytes_held", "Bytes of their files.", bytes_held)

    def text(self) -> str:
        parts: list[Counter | Gauge | Histogram] = list(vars(self).values())
        return "".join(
            f"# HELP {part.name} {part.about}\n# TYPE {part.name} {part.kind}\n"
            + "".join(f"{line}\n" for line in part.lines())
            for part in parts
        )


def _braces(names: Sequence[str], values: Sequence[str]) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
