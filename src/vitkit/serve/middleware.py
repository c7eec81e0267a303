"""Checks and headers of every request: Host, Origin, token, security headers, metrics, and errors as JSON.

An unknown name in the Host header is the sign of DNS rebinding, where another site points its own name at this server.
IP addresses and localhost cannot be forged that way. The operator must allow all other names.
"""

import errno
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

from vitkit.serve.errors import APIError
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
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_CODES = {404: "not_found", 405: "method_not_allowed"}


class RequestMiddleware:
    def __init__(
        self, app: ASGIApp, metrics: Metrics, paths: Iterable[str], token: str | None = None, hosts: Iterable[str] = ()
    ) -> None:
        """Metrics count `paths` by name and all other paths together. `hosts` are the allowed names in Host."""
        self.app, self.metrics, self.paths, self.token = app, metrics, frozenset(paths), token
        self.hosts = {"localhost", *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.monotonic(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            api_error = _to_api_error(error)
            if status:  # the response has started: it can only be aborted
                raise
            response = JSONResponse(api_error.json(), api_error.status, api_error.headers)
            await response(scope, receive, send_with_headers)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.request_seconds.labels(path).observe(time.monotonic() - started)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._is_allowed(host):
            raise APIError("bad_host", "this Host is not allowed: start the server with --allow-host NAME")
        origin = headers.get("origin")
        cross_site = headers.get("sec-fetch-site") == "cross-site" and scope["path"].startswith("/v1/")
        if cross_site or (origin is not None and _netloc(origin) != host.lower()):
            raise APIError("bad_origin", "requests from pages of other sites are not allowed")
        if self.token and scope["path"].startswith(("/v1/", "/metrics", "/openapi.json")):
            given = headers.get("authorization", "")
            if not secrets.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
                raise APIError("unauthorized", "send the token as 'Authorization: Bearer …'")

    def _is_allowed(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name not in self.hosts:
                ipaddress.ip_address(name)  # raises unless it is an address
        except ValueError:
            return False
        return True


def _netloc(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _to_api_error(error: Exception) -> APIError:
    if isinstance(error, APIError):
        return error
    if isinstance(error, HTTPException):
        allow = (error.headers or {}).get("Allow", "")
        return APIError(_CODES.get(error.status_code, "bad_request"), f"{error.detail}", allow)
    log.error("request failed", exc_info=error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _EXHAUSTED):
        return APIError("unavailable", "the server has no memory or no file descriptor left: retry later")
    return APIError("internal", "internal error; the server log has details")
