"""The images of a request, read with every limit in force while the bytes arrive. Nothing is written to disk."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from vitkit.serve.decoder_pool import check_format
from vitkit.serve.errors import Refusal
from vitkit.serve.limits import Limits, Place

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # strangers are not to fill the log

_ENOUGH_TO_TELL = 16  # bytes, for the format


@dataclass(frozen=True)
class Upload:
    name: str
    content: bytes


async def read_images(request: Request, limits: Limits, place: Place) -> list[Upload]:
    """One image as the body itself, or one or many as the files of a multipart form."""
    place.take_image()
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    try:
        async with asyncio.timeout(limits.upload):
            if kind == b"multipart/form-data":
                uploads = await _read_form(request, options.get(b"boundary", b""), limits, place)
            else:
                uploads = [Upload("", await _read_raw(request, limits, place))]
    except TimeoutError:
        raise Refusal("slow_upload", f"the body did not arrive within {limits.upload:g} s") from None
    except ClientDisconnect:
        raise Refusal("bad_request", "the client left") from None
    return uploads


async def read_one(request: Request, limits: Limits, place: Place) -> bytes:
    uploads = await read_images(request, limits, place)
    if len(uploads) != 1:
        raise Refusal("too_many_images", f"{len(uploads)} images: one at a time is taken here")
    check_format(uploads[0].content)
    return uploads[0].content


async def _chunks(request: Request, limits: Limits, place: Place) -> AsyncIterator[bytes]:
    stated = request.headers.get("content-length", "0")
    if stated.isdecimal() and int(stated) > limits.body:
        raise _too_large(limits)
    total = 0
    async for chunk in request.stream():
        total += len(chunk)
        if total > limits.body:
            raise _too_large(limits)
        place.take_bytes(len(chunk))
        yield chunk


async def _read_raw(request: Request, limits: Limits, place: Place) -> bytes:
    content = bytearray()
    told = False
    async for chunk in _chunks(request, limits, place):
        content += chunk
        if not told and len(content) >= _ENOUGH_TO_TELL:
            check_format(bytes(content[:_ENOUGH_TO_TELL]))
            told = True
    check_format(bytes(content[:_ENOUGH_TO_TELL]))
    return bytes(content)


async def _read_form(request: Request, boundary: bytes, limits: Limits, place: Place) -> list[Upload]:
    form = _Form(limits, place)
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]  # a TypedDict of them all
        async for chunk in _chunks(request, limits, place):
            parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise Refusal("bad_request", f"the form cannot be read: {' '.join(str(error).split())[:200]}") from error
    if not form.whole:
        raise Refusal("bad_request", "the form ends before its last boundary")
    if not form.uploads:
        raise Refusal("bad_request", "the form holds no file: send each image as a part with a file name")
    return form.uploads


class _Form:
    """Collects the parts that are files; other fields are refused, for nothing here would read them."""

    def __init__(self, limits: Limits, place: Place) -> None:
        self.limits, self.place = limits, place
        self.uploads: list[Upload] = []
        self.whole = False
        self._begin()

    def callbacks(self) -> dict[str, object]:
        return dict(
            on_part_begin=self._begin, on_header_field=self._field, on_header_value=self._value,
            on_header_end=self._header, on_headers_finished=self._headers, on_part_data=self._data,
            on_part_end=self._end, on_end=self._close,
        )  # fmt: skip

    def _begin(self) -> None:
        self.field, self.value, self.disposition = b"", b"", b""
        self.name, self.content = "", bytearray()

    def _field(self, data: bytes, start: int, end: int) -> None:
        self.field += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]

    def _header(self) -> None:
        if self.field.lower() == b"content-disposition":
            self.disposition = self.value
        self.field, self.value = b"", b""

    def _headers(self) -> None:
        _, options = parse_options_header(self.disposition)
        if b"filename" not in options:
            raise Refusal("bad_request", "the form has a field that is not a file: options stand in the query")
        if len(self.uploads) >= self.limits.images:
            raise Refusal("too_many_images", f"more than {self.limits.images} images in one request")
        if self.uploads:  # the first has its place already
            self.place.take_image()
        self.name = options[b"filename"].decode(errors="replace")[:200]

    def _data(self, data: bytes, start: int, end: int) -> None:
        self.content += data[start:end]

    def _end(self) -> None:
        self.uploads.append(Upload(self.name, bytes(self.content)))

    def _close(self) -> None:
        self.whole = True


def _too_large(limits: Limits) -> Refusal:
    return Refusal("body_too_large", f"the body is larger than {limits.body:,} bytes")
