"""A stricter version of uvicorn's HTTP protocol. Nothing that a client sends or does not read can hold a connection.

A header must arrive in time, and so must the rest of a body whose request has been answered. A response must be read
at a lowest rate. Malformed requests end at once. Connections above the limit are refused.
"""

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from vitkit.serve.errors import RETRY_AFTER, APIError

_MIN_BYTES_PER_S = 4096  # at which a client reads a response


def _response(status: str, error: APIError) -> bytes:
    content = json.dumps(error.json()).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"
    head += f"Connection: close\r\nRetry-After: {RETRY_AFTER}\r\n" if error.status == 503 else "Connection: close\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


_BAD_REQUEST = _response("400 Bad Request", APIError("bad_request", "this is not valid HTTP"))
_FULL = _response("503 Service Unavailable", APIError("unavailable", "too many connections: retry later"))


class StrictHTTPProtocol(H11Protocol):
    """`limit_concurrency` is the number of connections from which on further ones are refused."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            transport.write(_FULL)
            transport.close()
        else:
            self._await_client()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waits_for_client():
            self._await_client()
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_BAD_REQUEST)  # bypasses h11, which is in an error state
        self.transport.close()
        if self.cycle is not None:  # tell the running request that the client is gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._waits_for_client():
            self._await_client()
        self._await_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading()

    def _waits_for_client(self) -> bool:
        """Return whether no request is running: the next one, or the rest of an answered one, is to arrive."""
        return self.conn.their_state is h11.IDLE or self.cycle is None or self.cycle.response_complete

    def _await_client(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.timeout_keep_alive, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        if self._waits_for_client() and not self.transport.is_closing():
            self.transport.close()

    def _await_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread and self._write_timer is None:
            self._write_timer = self.loop.call_later(self.timeout_keep_alive, self._check_reading, unread)

    def _check_reading(self, unread: int) -> None:
        self._write_timer = None
        left = self.transport.get_write_buffer_size()
        if left and left > unread - _MIN_BYTES_PER_S * self.timeout_keep_alive:
            self.transport.abort()
        else:
            self._await_reading()
