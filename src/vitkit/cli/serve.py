import sys
from dataclasses import dataclass

from tyro.conf import Positional


@dataclass(frozen=True)
class Serve:
    """Answer over HTTP, with a page to look at predictions and attention."""

    model: Positional[tuple[str, ...]]
    """Model folders, run folders or exports; each is called by its folder's name."""
    host: str = "127.0.0.1"
    """Address to listen at; one that other machines reach needs a token."""
    port: int = 8000
    """0 takes a free one."""
    engine: str = "auto"
    """eager, compiled, onnx or openvino; auto is eager, which is ready at once."""
    batch: int = 32
    """Images that the model takes at once, at most."""
    wait: float = 5.0
    """Milliseconds that a batch waits for images which are being decoded."""
    queue: int = 256
    """Images under way; above, requests are refused with 429."""
    deadline: float = 10.0
    """Seconds for an answer, 60 or more for an explanation; above, 504."""
    decoders: int = 2
    """Processes that decode images."""
    body: float = 20.0
    """MiB that a request may have."""
    pixels: float = 50.0
    """Millions of pixels that an image may have."""
    token_file: str | None = None
    """A file with the bearer token that clients have to send; or set VITKIT_TOKEN."""
    allow_host: tuple[str, ...] = ()
    """Names under which the server may be addressed, besides localhost and addresses."""
    samples: str | None = None
    """A folder of images to offer on the page."""

    def run(self) -> int:
        from importlib.util import find_spec

        from vitkit.errors import ConfigError, MissingExtraError

        for package in ("starlette", "uvicorn", "python_multipart"):
            if find_spec(package) is None:
                raise MissingExtraError("vitkit serve", package, "serve")
        if not self.model:
            raise ConfigError("no model to serve: vitkit serve MODEL")
        if min(self.batch, self.queue, self.decoders, self.deadline, self.body, self.pixels) <= 0 or self.wait < 0:
            raise ConfigError("batch, queue, decoders, deadline, body and pixels have to be above 0")

        from vitkit.serve.limits import MIB, Limits
        from vitkit.serve.server import read_token, serve

        limits = Limits(
            body=int(self.body * MIB), pixels=int(self.pixels * 1e6), waiting=self.queue, batch=self.batch,
            wait_ms=self.wait, deadline=self.deadline, decoders=self.decoders,
            held=max(Limits.held, int(2 * self.body * MIB)),
            explain_deadline=max(Limits.explain_deadline, self.deadline),
        )  # fmt: skip
        token = read_token(self.token_file)
        cut_off = serve(
            self.model, self.host, self.port, engine=self.engine, limits=limits, token=token,
            allow_hosts=self.allow_host, samples=self.samples, listening=_announce,
        )  # fmt: skip
        fate = f"{cut_off} requests took too long and were cut off" if cut_off else "all that was taken is answered"
        print(f"vitkit: stopped; {fate}", flush=True)
        return 0


def _announce(address: str, house: object) -> None:
    from vitkit.serve.service import House

    assert isinstance(house, House)
    for served in house.models.values():
        for line in served.assumed:
            print(f"vitkit: assumed of {served.name}: {line}", file=sys.stderr)
        print(f"{served.name}: {len(served.predictor.class_names)} classes, {served.predictor.chosen}")
    print(f"serving at {address} (Ctrl-C stops)", flush=True)
