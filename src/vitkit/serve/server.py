"""`serve`: load the models, listen, and shut down gracefully."""

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvicorn

from vitkit.errors import ConfigError, UsageError
from vitkit.serve.app import create_app
from vitkit.serve.http_protocol import StrictHTTPProtocol
from vitkit.serve.limits import Limits
from vitkit.serve.model_registry import load_models
from vitkit.serve.sample_images import load_samples
from vitkit.serve.service import InferenceService

TOKEN_VARIABLE = "VITKIT_TOKEN"
_MIN_TOKEN_LENGTH = 16
_BACKLOG = 100  # connections that the event loop accepts at once
_OTHER_FILES = 64  # descriptors for new decoders, files of the page, log


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
    on_listening: Callable[[str, InferenceService], None] = lambda address, service: None,
) -> int:
    """Serve until SIGTERM or SIGINT, then finish the requests in flight. Port 0 picks a free port.

    Returns the number of requests that were aborted because they exceeded the drain time.
    """
    if not hasattr(os, "fork"):
        raise UsageError("vitkit serve decodes images in forked processes: run it on Linux or macOS")
    check_exposure(host, token)
    limits = limits or Limits()
    with _listen(host, port) as listener:  # before loading, so that a port in use is reported at once
        models = load_models(sources, engine)
        service = InferenceService(
            models, limits, load_samples(samples, [m.predictor.preprocess for m in models.values()])
        )
        config = uvicorn.Config(
            create_app(service, token, [host, *allow_hosts]), http=StrictHTTPProtocol, ws="none", proxy_headers=False,
            server_header=False, log_config=None, log_level="error", access_log=False, lifespan="off",
            timeout_keep_alive=int(limits.header_seconds), backlog=_BACKLOG,
            limit_concurrency=connection_limit(limits.connections) + 1,
            timeout_graceful_shutdown=limits.drain_seconds, h11_max_incomplete_event_size=16_384,
        )  # fmt: skip
        address = listener.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        server = _Server(config, lambda: on_listening(f"http://{shown}:{address[1]}/", service))
        with service, _process_settings():
            server.run(sockets=[listener])
        return service.admission.aborted


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_started()


@contextlib.contextmanager
def _process_settings() -> Iterator[None]:
    """Ignore the signals that uvicorn raises again after a graceful shutdown, and silence the form parser's log.

    Clients could fill the log with malformed forms. Both settings are restored at the end.
    """
    parser_log = logging.getLogger("python_multipart")
    level, in_main = parser_log.level, threading.current_thread() is threading.main_thread()
    handlers = {n: signal.signal(n, lambda *_: None) for n in (signal.SIGTERM, signal.SIGINT)} if in_main else {}
    parser_log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        parser_log.setLevel(level)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def connection_limit(wanted: int) -> int:
    """Return how many connections fit below the limit of file descriptors, which is raised if that is allowed."""
    import resource  # POSIX only

    other = len(os.listdir("/dev/fd")) + _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (resource.RLIM_INFINITY, hard) and soft < wanted + other:
        soft = wanted + other if hard == resource.RLIM_INFINITY else min(wanted + other, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft <= other:
        need = wanted + other
        raise UsageError(f"the limit of {soft} open files is too low to serve: raise it with ulimit -n {need}")
    return min(wanted, soft - other)


def check_exposure(host: str, token: str | None) -> None:
    """Raise if the server would be reachable from other machines without a token, or if the token is short."""
    if token is not None and len(token) < _MIN_TOKEN_LENGTH:
        raise ConfigError(f"the token has {len(token)} characters: use at least {_MIN_TOKEN_LENGTH} random characters")
    if token is None and not is_loopback(host):
        how = f"set {TOKEN_VARIABLE} or give --token-file"
        raise ConfigError(f"--host {host} is reachable from other machines and needs a token: {how}")


def is_loopback(host: str) -> bool:
    """Return whether all addresses of the host are loopback addresses."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise ConfigError(f"--host {host} is not an address of this machine: {error}") from error
    return all(ipaddress.ip_address(address.split("%")[0]).is_loopback for address in found)


def read_token(path: str | None) -> str | None:
    """Read the token from a file or the environment. All users of a machine can see its command lines."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError as error:
        raise UsageError(f"--token-file {path}: {error.strerror}; name a file that contains the token") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise UsageError(f"cannot listen on {host} port {port} ({error}): choose another --port") from error
    return listener
