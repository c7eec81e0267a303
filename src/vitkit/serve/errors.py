"""Errors of the HTTP API. Clients get a code and a one-line message, never a traceback."""

from typing import Any

ERROR_CODES: dict[str, tuple[int, str]] = {
    "bad_request": (400, "the request cannot be parsed"),
    "bad_parameter": (400, "a query parameter is unknown, malformed or out of range"),
    "unauthorized": (401, "the bearer token is missing or wrong"),
    "bad_origin": (403, "a page of another site sent the request"),
    "not_found": (404, "nothing exists at this address"),
    "unknown_model": (404, "no served model has this name"),
    "method_not_allowed": (405, "this address does not support the method"),
    "slow_upload": (408, "the body did not arrive in time"),
    "body_too_large": (413, "the body exceeds the size limit"),
    "too_many_images": (413, "the request has more images than allowed"),
    "too_many_pixels": (413, "the image has more pixels than allowed"),
    "unsupported_format": (415, "the content is not an image in a supported format"),
    "bad_host": (421, "the Host header does not name this server"),
    "unreadable_image": (422, "the image is corrupt"),
    "decoding_limit": (422, "decoding exceeds the time or memory limit of one image"),
    "cannot_explain": (422, "this model does not support the requested explanation"),
    "overloaded": (429, "the server is at capacity; retry after Retry-After seconds"),
    "internal": (500, "internal error; the server log has details"),
    "stopping": (503, "the server is starting or stopping"),
    "unavailable": (503, "decoding or inference does not work at the moment; retry after Retry-After seconds"),
    "too_late": (504, "the response was not ready before the deadline"),
}
RETRY_AFTER = "1"


class APIError(Exception):
    """An error response. `code` is a key of `ERROR_CODES`, which gives its HTTP status."""

    def __init__(self, code: str, message: str, allow: str = "") -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.status = ERROR_CODES[code][0]
        self.headers: dict[str, str] = {}
        if self.status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"
        if self.status in (429, 503):
            self.headers["Retry-After"] = RETRY_AFTER
        if self.status in (408, 413):
            self.headers["Connection"] = "close"  # the rest of the body is not read
        if allow:
            self.headers["Allow"] = allow

    def json(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}
