"""uvicorn's connection, stricter: a head has to be there in time, and a request that breaks in the middle is over."""

import asyncio
import json

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from vitkit.serve.errors import Refusal

_BROKEN_JSON = json.dumps(Refusal("bad_request", "this is not HTTP that can be read").json()).encode()
_BROKEN = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_BROKEN_JSON), _BROKEN_JSON)
)


class Connection(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._due: asyncio.TimerHandle | None = None
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect_head()
        elif self._due is not None:
            self._due.cancel()
            self._due = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._due is not None:
            self._due.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_BROKEN)  # past h11, whose state is beyond saying anything
        self.transport.close()
        if self.cycle is not None:  # what is under way hears that nobody listens any more
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _expect_head(self) -> None:
        if self._due is None:
            self._due = self.loop.call_later(self.timeout_keep_alive, self._too_slow)

    def _too_slow(self) -> None:
        self._due = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
