"""Requests above a limit are rejected; what a request held is released."""

import asyncio
import socket

import numpy as np
import pytest

from vitkit.serve.errors import APIError
from vitkit.serve.limits import Admission, Limits, Ticket

from .client import AUTHORIZED, Server, encoded, noise_png, post_header, wait_until


def test_images_and_bytes_are_counted_over_all_requests_and_released() -> None:
    admission = Admission(Limits(queued_images=2, queued_bytes=100))
    with Ticket(admission) as first, Ticket(admission) as second:
        first.add_image()
        second.add_image()
        second.add_bytes(60)
        with pytest.raises(APIError, match="2 images are in progress") as full:
            first.add_image()
        with pytest.raises(APIError, match="memory"):
            first.add_bytes(41)
        first.add_bytes(40)
    assert (full.value.status, full.value.headers["Retry-After"]) == (429, "1")
    assert (admission.images, admission.bytes, admission.aborted) == (0, 0, 0)
    with pytest.raises(asyncio.CancelledError), Ticket(admission):
        raise asyncio.CancelledError
    assert admission.aborted == 1


def test_an_response_that_is_late_is_refused(strict: Server) -> None:
    response = strict.post("/v1/predict", encoded(np.zeros((90, 90, 3), np.uint8)), **AUTHORIZED)
    assert (response.status, response.code) == (504, "too_late")


def receive(connection: socket.socket) -> bytes:
    found = b""
    while chunk := connection.recv(65536):
        found += chunk
        if b"\r\n\r\n" in found and found.count(b'"message"'):
            break
    return found


def test_an_overloaded_server_says_when_to_retry(strict: Server) -> None:
    """An unfinished upload occupies the only slot."""
    with strict.socket() as first:
        first.sendall(post_header("/v1/predict", 1000) + noise_png()[:100])
        metrics = lambda: strict.get("/metrics", **AUTHORIZED).content  # noqa: E731
        wait_until(lambda: b"vitkit_images_waiting 1.0\n" in metrics())
        response = strict.post("/v1/predict", noise_png(), **AUTHORIZED)
        assert (response.status, response.code, response.headers["retry-after"]) == (429, "overloaded", "1")
    wait_until(lambda: b"vitkit_images_waiting 0.0\n" in metrics())
    assert b"vitkit_bytes_held 0.0\n" in metrics()


def test_bodies_over_the_limit_are_rejected_before_they_are_read(strict: Server) -> None:
    with strict.socket() as stated:
        stated.sendall(post_header("/v1/predict", 10**9))
        assert b"body_too_large" in receive(stated)
    with strict.socket() as chunked:  # no length is stated: bytes are counted while they arrive
        chunked.sendall(post_header("/v1/predict", 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b"\x89PNG\r\n\x1a\n" + bytes(65528) + b"\r\n"
        chunked.sendall(chunk)
        chunked.sendall(chunk)
        response = receive(chunked)
    assert b"413" in response.split(b"\r\n")[0]
    assert b"body_too_large" in response
