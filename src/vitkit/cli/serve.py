import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tyro.conf import Positional

from vitkit.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from vitkit.serve.service import InferenceService


@dataclass(frozen=True)
class Serve:
    """Serve models over HTTP, with a page that shows predictions and attention."""

    model: Positional[tuple[str, ...]]
    """Model folders, run folders or exports. Each is served under the name of its folder."""
    host: str = "127.0.0.1"
    """Address to listen on. Addresses that other machines can reach require a token."""
    port: int = 8000
    """Port to listen on. 0 picks a free port."""
    engine: str = "auto"
    """Inference engine: eager, compiled, onnx or openvino. auto is eager, which starts fastest."""
    batch: int = 32
    """Largest batch size."""
    wait: float = 5.0
    """Milliseconds that a batch waits for images that are being decoded."""
    queue: int = 256
    """Largest number of images in progress. Further requests get status 429."""
    deadline: float = 10.0
    """Seconds until a request gets status 504. Explanations have at least 60."""
    decoders: int = 2
    """Number of processes that decode images."""
    body: float = 20.0
    """Largest request body in MiB."""
    pixels: float = 50.0
    """Largest image in millions of pixels."""
    token_file: str | None = None
    """File with the bearer token that clients must send. Alternative: the variable VITKIT_TOKEN."""
    allow_host: tuple[str, ...] = ()
    """Host names of this server, besides localhost and IP addresses."""
    samples: str | None = None
    """Folder of sample images for the page."""

    def run(self) -> int:
        for package in ("starlette", "uvicorn", "python_multipart", "prometheus_client"):
            if importlib.util.find_spec(package) is None:
                raise MissingExtraError("vitkit serve", package, "serve")
        if not self.model:
            raise ConfigError("no model to serve: vitkit serve MODEL")
        for name in ("batch", "queue", "decoders", "deadline", "body", "pixels"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"--{name} {getattr(self, name):g}: must be above 0")
        if self.wait < 0:
            raise ConfigError(f"--wait {self.wait:g}: must not be negative")

        from vitkit.serve.limits import MIB, Limits
        from vitkit.serve.server import read_token, serve

        limits = Limits(
            body_bytes=int(self.body * MIB), image_pixels=int(self.pixels * 1e6), queued_images=self.queue,
            queued_bytes=max(Limits.queued_bytes, int(2 * self.body * MIB)), batch_size=self.batch,
            batch_wait_ms=self.wait, deadline=self.deadline, decoders=self.decoders,
            explain_deadline=max(Limits.explain_deadline, self.deadline),
        )  # fmt: skip
        aborted = serve(
            self.model, self.host, self.port, engine=self.engine, limits=limits, token=read_token(self.token_file),
            allow_hosts=self.allow_host, samples=self.samples, on_listening=_announce,
        )  # fmt: skip
        outcome = f"{aborted} requests took too long and were aborted" if aborted else "all requests were answered"
        print(f"vitkit: stopped; {outcome}", flush=True)
        return 0


def _announce(address: str, service: "InferenceService") -> None:
    for served in service.models.values():
        for line in served.assumptions:
            print(f"vitkit: assumed for {served.name}: {line}", file=sys.stderr)
        print(f"{served.name}: {len(served.predictor.class_names)} classes, {served.predictor.engine_description}")
    print(f"serving at {address} (Ctrl-C stops)", flush=True)
