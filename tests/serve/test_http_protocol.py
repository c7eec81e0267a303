"""Malformed HTTP and silent clients."""

import json
import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from .client import Server, noise_png, post_header, running, wait_until


@pytest.mark.parametrize(
    "request_",
    [
        b"no HTTP at all\r\n\r\n",
        b"HEAD / HTTP/9\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n",
    ],
)
def test_malformed_http_gets_a_json_error(server: Server, request_: bytes) -> None:
    with server.socket() as connection:
        connection.sendall(request_)
        response = b""
        while chunk := connection.recv(65536):
            response += chunk
    head, body = response.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "bad_request"


def test_idle_connections_are_closed(server: Server) -> None:
    with server.socket() as silent, server.socket() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        for connection in (silent, slow):
            connection.settimeout(60)
            assert connection.recv(1) == b""
    wait_until(lambda: server.get("/healthz").status == 200)


@pytest.mark.parametrize("path", ["/healthz", "/v1/predict", "/nothing"])
def test_a_body_that_drips_after_an_early_answer_ends_the_connection(strict: Server, path: str) -> None:
    """No token is sent, and no endpoint reads the body."""
    with strict.socket() as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n".encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 4")
        started = time.monotonic()
        with suppress(OSError):  # closed
            while time.monotonic() < started + 30:
                connection.sendall(b"x")
                time.sleep(0.2)
        assert time.monotonic() - started < 10


def test_the_rest_of_an_answered_body_may_arrive_and_the_connection_is_used_again(strict: Server) -> None:
    with strict.socket() as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}}"):
            answer += connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 401 ")
        connection.sendall(b"0123456789GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_does_not_read_its_response_is_disconnected(folders: tuple[Path, Path]) -> None:
    with running(str(folders[1])) as server:
        idle = open_files(server)
        with server.socket() as connection:
            request = post_header("/v1/attention", len(noise_png())) + noise_png()
            connection.settimeout(1)
            with suppress(OSError):  # until the buffers are full
                while True:
                    connection.sendall(request)
            assert open_files(server) > idle
            wait_until(lambda: open_files(server) == idle, 30)


def open_files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def test_connections_stay_below_the_limit_of_descriptors(folders: tuple[Path, Path]) -> None:
    with running(str(folders[0]), descriptors=300) as server, ExitStack() as stack:
        idle = open_files(server)
        others = [stack.enter_context(server.socket()) for _ in range(200)]
        refused = b"".join(connection.recv(65536) for connection in others[-50:])
        assert refused.count(b"HTTP/1.1 503 ") == 50
        assert refused.count(b"too many connections") == 50
        assert idle + 50 < open_files(server) < 300 - 64  # some descriptors are left for decoders and files
        wait_until(lambda: server.get("/healthz").status == 200, 20)
