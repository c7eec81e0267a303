"""A stricter version of uvicorn's HTTP protocol: headers must arrive in time, and malformed requests end at once."""

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from vitkit.serve.errors import APIError

_BAD_REQUEST_JSON = json.dumps(APIError("bad_request", "this is not valid HTTP").json()).encode()
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_BAD_REQUEST_JSON), _BAD_REQUEST_JSON)
)


class StrictHTTPProtocol(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._await_header()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_header()
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_BAD_REQUEST)  # bypasses h11, which is in an error state
        self.transport.close()
        if self.cycle is not None:  # tell the running request that the client is gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _await_header(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.timeout_keep_alive, self._close_idle)

    def _close_idle(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
