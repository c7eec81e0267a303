"""Slow and silent clients."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from vitkit.serve.errors import Refusal
from vitkit.serve.limits import Gate, Limits
from vitkit.serve.uploads import read_images

from .client import Server, picture, until


def request(*messages: dict[str, Any], kind: str = "image/png") -> Request:
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.sleep(60)
        return waiting.pop(0)

    return Request({"type": "http", "headers": [(b"content-type", kind.encode())]}, receive)


def read(limits: Limits, *messages: dict[str, Any]) -> tuple[list, Gate]:
    gate = Gate(limits)

    async def run() -> list:
        with gate.place() as place:
            return await read_images(request(*messages), limits, place)

    return asyncio.run(run()), gate


def part(content: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": content, "more_body": more}


def test_a_body_that_does_not_end_is_given_up() -> None:
    with pytest.raises(Refusal) as refused:
        read(Limits(upload=0.05), part(picture()[:50], True))
    assert (refused.value.status, refused.value.code) == (408, "slow_upload")


def test_a_client_that_leaves_is_no_error_of_the_server() -> None:
    with pytest.raises(Refusal) as refused:
        read(Limits(), part(picture()[:50], True), {"type": "http.disconnect"})
    assert refused.value.status == 400


def test_bytes_of_all_requests_are_counted_together() -> None:
    with pytest.raises(Refusal) as refused:
        read(Limits(held=100), part(picture()[:80], True), part(bytes(80), False))
    assert (refused.value.status, refused.value.code) == (429, "overloaded")


def test_what_a_request_held_is_given_back() -> None:
    uploads, gate = read(Limits(), part(picture()[:50], True), part(picture()[50:], False))
    assert uploads[0].content == picture()
    assert (gate.images, gate.bytes) == (0, 0)


def test_what_is_no_image_is_refused_with_its_first_bytes() -> None:
    with pytest.raises(Refusal, match="not an image"):
        read(Limits(upload=5), part(b"#!/bin/sh and more of it", True))


def test_a_connection_on_which_nothing_comes_is_closed(server: Server) -> None:
    with server.socket() as silent, server.socket() as dripping:
        dripping.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        silent.settimeout(60)
        assert silent.recv(1) == b""
        dripping.settimeout(60)
        assert dripping.recv(1) == b""
    until(lambda: server.get("/healthz").status == 200)
