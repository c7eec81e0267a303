"""`serve`: load, listen, and stop in good order."""

import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from vitkit.errors import ConfigError, UsageError
from vitkit.serve import models
from vitkit.serve.app import create_app
from vitkit.serve.http_protocol import Connection
from vitkit.serve.limits import Limits
from vitkit.serve.samples import find_samples
from vitkit.serve.service import House

TOKEN = "VITKIT_TOKEN"
_SHORTEST_TOKEN = 16


def serve(
    sources: Sequence[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    engine: str = "auto",
    limits: Limits | None = None,
    token: str | None = None,
    allow_hosts: Sequence[str] = (),
    samples: str | None = None,
    listening: Callable[[str, House], None] = lambda address, house: None,
) -> int:
    """Until SIGTERM or SIGINT; what was taken is answered before it ends. Port 0 takes a free one.

    Returns how many requests had to be cut off, since they took longer than an orderly end may take.
    """
    check_exposure(host, token)
    limits = limits or Limits()
    with _listen(host, port) as listener:  # first: a port that is taken shows at once, not when all is loaded
        loaded = models.load(sources, engine)
        house = House(loaded, limits, find_samples(samples, [m.predictor.preprocess for m in loaded.values()]))
        app = create_app(house, token, [host, *allow_hosts])
        config = uvicorn.Config(
            app, http=Connection, ws="none", proxy_headers=False, server_header=False, log_level="error",
            access_log=False, timeout_keep_alive=int(limits.headers), limit_concurrency=limits.connections,
            timeout_graceful_shutdown=limits.drain, h11_max_incomplete_event_size=16_384, lifespan="off",
        )  # fmt: skip
        at = listener.getsockname()
        shown = f"[{at[0]}]" if ":" in at[0] else at[0]
        server = _Announcing(config, lambda: listening(f"http://{shown}:{at[1]}/", house))
        with house:
            for number in (signal.SIGTERM, signal.SIGINT):  # raised again by uvicorn when all is answered
                signal.signal(number, lambda *_: None)
            server.run(sockets=[listener])
        return house.gate.cut_off


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()


def check_exposure(host: str, token: str | None) -> None:
    """Beyond this machine only with a token."""
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise ConfigError(f"the token has {len(token)} characters: use {_SHORTEST_TOKEN} or more that nobody can guess")
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"--host {host} is reachable from other machines and needs a token: set {TOKEN} or give --token-file"
        )


def is_loopback(host: str) -> bool:
    """Of a name: whether all its addresses are."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ConfigError(f"--host {host} is not an address of this machine: {error}") from error
    return all(ipaddress.ip_address(address.split("%")[0]).is_loopback for address in found)


def read_token(path: str | None) -> str | None:
    """From a file, else from the environment: a command line can be read by every user of the machine."""
    if path is None:
        return os.environ.get(TOKEN) or None
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise UsageError(f"--token-file {path}: {error.strerror}; name a file that holds the token") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise UsageError(f"cannot listen at {host} port {port} ({error}): choose another --port") from error
    return listener
