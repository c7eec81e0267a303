"""Malformed HTTP and silent clients."""

import json

import pytest

from .client import Server, wait_until


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
