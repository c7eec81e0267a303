"""What every request passes before and after its endpoint: host, origin, token, headers, counting, and no traces.

A name that is not ours in Host is how DNS rebinding looks: a page of another site makes its own name point here.
Addresses and localhost cannot be forged that way, other names have to be allowed by the operator.
"""

import ipaddress
import logging
import secrets
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vitkit.serve.errors import Refusal
from vitkit.serve.metrics import Metrics

log = logging.getLogger("vitkit.serve")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_STATUS = {404: "not_found", 405: "method_not_allowed"}


class Guard:
    def __init__(
        self, app: ASGIApp, metrics: Metrics, paths: Iterable[str], token: str | None = None, hosts: Iterable[str] = ()
    ) -> None:
        """`paths` are counted by name, all others as one. `hosts`: names that may stand in Host."""
        self.app, self.metrics, self.paths, self.token = app, metrics, frozenset(paths), token
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, send_guarded)
        except Exception as error:
            refusal = _as_refusal(error)
            if status:  # the answer has begun: all that is left is to break it off
                raise
            response = JSONResponse(refusal.json(), refusal.status, refusal.headers)
            await response(scope, receive, send_guarded)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.requests.add(path, str(status))
            self.metrics.seconds.observe(time.monotonic() - started, path)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._is_ours(host):
            raise Refusal("bad_host", "this server does not answer for that Host: allow it with --allow-host")
        origin = headers.get("origin")
        if origin is not None and urlsplit_netloc(origin) != host.lower():
            raise Refusal("bad_origin", "requests from pages of other sites are not answered")
        if headers.get("sec-fetch-site") == "cross-site" and scope["path"].startswith("/v1/"):
            raise Refusal("bad_origin", "requests from pages of other sites are not answered")
        if self.token and scope["path"].startswith(("/v1/", "/metrics", "/openapi.json")):
            given = headers.get("authorization", "")
            if not secrets.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
                raise Refusal("unauthorized", "send the token as 'Authorization: Bearer …'")

    def _is_ours(self, host: str) -> bool:
        name = _host_name(host)
        if name in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def urlsplit_netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _as_refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, HTTPException):
        allow = (error.headers or {}).get("Allow", "")
        return Refusal(_STATUS.get(error.status_code, "bad_request"), f"{error.detail}", allow)
    log.error("a request failed", exc_info=error)
    return Refusal("internal", "an error of the server; its log says more")
