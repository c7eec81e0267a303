"""Uploads are limited in time and size; errors release what was counted."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from vitkit.serve.errors import APIError
from vitkit.serve.limits import Admission, Limits, Ticket
from vitkit.serve.uploads import read_images

from .client import noise_png


def request(*messages: dict[str, Any], kind: str = "image/png") -> Request:
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.sleep(60)
        return waiting.pop(0)

    return Request({"type": "http", "headers": [(b"content-type", kind.encode())]}, receive)


def read(limits: Limits, *messages: dict[str, Any]) -> tuple[list, Admission]:
    admission = Admission(limits)

    async def run() -> list:
        with Ticket(admission) as ticket:
            return await read_images(request(*messages), limits, ticket)

    return asyncio.run(run()), admission


def part(content: bytes, more: bool) -> dict[str, Any]:
    return {"type": "http.request", "body": content, "more_body": more}


def test_a_body_that_does_not_end_times_out() -> None:
    with pytest.raises(APIError) as raised:
        read(Limits(upload_seconds=0.05), part(noise_png()[:50], True))
    assert (raised.value.status, raised.value.code) == (408, "slow_upload")


def test_a_disconnected_client_is_not_a_server_error() -> None:
    with pytest.raises(APIError) as raised:
        read(Limits(), part(noise_png()[:50], True), {"type": "http.disconnect"})
    assert raised.value.status == 400


def test_bytes_of_all_requests_are_counted_together() -> None:
    with pytest.raises(APIError) as raised:
        read(Limits(queued_bytes=100), part(noise_png()[:80], True), part(bytes(80), False))
    assert (raised.value.status, raised.value.code) == (429, "overloaded")


def test_images_and_bytes_of_a_request_are_released() -> None:
    uploads, admission = read(Limits(), part(noise_png()[:50], True), part(noise_png()[50:], False))
    assert uploads[0].content == noise_png()
    assert (admission.images, admission.bytes) == (0, 0)


def test_content_that_is_not_an_image_is_rejected_by_its_first_bytes() -> None:
    with pytest.raises(APIError, match="not an image"):
        read(Limits(upload_seconds=5), part(b"#!/bin/sh and more of it", True))
