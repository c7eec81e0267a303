"""Reads the images of a request and enforces every limit while the bytes arrive. Nothing is written to disk."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from vitkit.serve.decoder_pool import check_format
from vitkit.serve.errors import APIError
from vitkit.serve.limits import Limits, Ticket

_SIGNATURE_BYTES = 16  # enough to recognise the format


@dataclass(frozen=True)
class Upload:
    name: str
    content: bytes


async def read_images(request: Request, limits: Limits, ticket: Ticket) -> list[Upload]:
    """Return the image that is the body, or the images that are the files of a multipart form."""
    ticket.add_image()
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    try:
        async with asyncio.timeout(limits.upload_seconds):
            if kind == b"multipart/form-data":
                return await _read_form(request, options.get(b"boundary", b""), limits, ticket)
            return [Upload("", await _read_body(request, limits, ticket))]
    except TimeoutError:
        raise APIError("slow_upload", f"the body did not arrive within {limits.upload_seconds:g} s") from None
    except ClientDisconnect:
        raise APIError("bad_request", "the client disconnected") from None


async def read_image(request: Request, limits: Limits, ticket: Ticket) -> bytes:
    uploads = await read_images(request, limits, ticket)
    if len(uploads) != 1:
        raise APIError("too_many_images", f"{len(uploads)} images: send one image per request to this address")
    check_format(uploads[0].content)
    return uploads[0].content


async def _chunks(request: Request, limits: Limits, ticket: Ticket) -> AsyncIterator[bytes]:
    too_large = APIError("body_too_large", f"the body is larger than {limits.body_bytes:,} bytes")
    stated = request.headers.get("content-length", "0")
    if stated.isdecimal() and int(stated) > limits.body_bytes:
        raise too_large
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > limits.body_bytes:
            raise too_large
        ticket.add_bytes(len(chunk))
        yield chunk


async def _read_body(request: Request, limits: Limits, ticket: Ticket) -> bytes:
    content = bytearray()
    async for chunk in _chunks(request, limits, ticket):
        content += chunk
        if len(content) >= _SIGNATURE_BYTES:
            check_format(bytes(content[:_SIGNATURE_BYTES]))
    check_format(bytes(content[:_SIGNATURE_BYTES]))
    return bytes(content)


async def _read_form(request: Request, boundary: bytes, limits: Limits, ticket: Ticket) -> list[Upload]:
    form = _FormReader(limits, ticket)
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]  # a TypedDict of them all
        async for chunk in _chunks(request, limits, ticket):
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise APIError("bad_request", f"the form cannot be parsed: {' '.join(str(error).split())[:200]}") from error
    if not form.complete:
        raise APIError("bad_request", "the form ends before its last boundary")
    if not form.uploads:
        raise APIError("bad_request", "the form contains no file: send each image as a part with a file name")
    return form.uploads


class _FormReader:
    """Collects the files of a form. Other fields are errors, because nothing would read them."""

    def __init__(self, limits: Limits, ticket: Ticket) -> None:
        self.limits, self.ticket = limits, ticket
        self.uploads: list[Upload] = []
        self.complete = False
        self._begin_part()

    def callbacks(self) -> dict[str, object]:
        return dict(
            on_part_begin=self._begin_part, on_header_field=self._header_field, on_header_value=self._header_value,
            on_header_end=self._end_header, on_headers_finished=self._end_headers, on_part_data=self._part_data,
            on_part_end=self._end_part, on_end=self._end,
        )  # fmt: skip

    def _begin_part(self) -> None:
        self.field, self.value, self.disposition = b"", b"", b""
        self.name, self.content = "", bytearray()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self.field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]

    def _end_header(self) -> None:
        if self.field.lower() == b"content-disposition":
            self.disposition = self.value
        self.field, self.value = b"", b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self.disposition)
        if b"filename" not in options:
            raise APIError("bad_request", "the form has a field that is not a file: send options in the query string")
        if len(self.uploads) >= self.limits.request_images:
            raise APIError("too_many_images", f"more than {self.limits.request_images} images in one request")
        if self.uploads:  # `read_images` has counted the first one
            self.ticket.add_image()
        self.name = options[b"filename"].decode(errors="replace")[:200]

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        self.content += data[start:end]

    def _end_part(self) -> None:
        self.uploads.append(Upload(self.name, bytes(self.content)))

    def _end(self) -> None:
        self.complete = True
