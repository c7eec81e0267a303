"""Every way in which the server says no. Clients see a code and one line; never a trace."""

from typing import Any

REFUSALS: dict[str, tuple[int, str]] = {
    "bad_request": (400, "the request cannot be read"),
    "bad_parameter": (400, "a parameter is unknown, malformed or out of its range"),
    "unauthorized": (401, "the bearer token is missing or wrong"),
    "bad_origin": (403, "a page of another site sent the request"),
    "not_found": (404, "there is nothing at this address"),
    "unknown_model": (404, "no model of that name is served"),
    "method_not_allowed": (405, "the address knows other methods"),
    "slow_upload": (408, "the body did not arrive in time"),
    "body_too_large": (413, "the body is larger than the limit"),
    "too_many_images": (413, "the request holds more images than the limit"),
    "too_many_pixels": (413, "the image has more pixels than the limit"),
    "unsupported_format": (415, "the content is not an image of a format that is taken"),
    "bad_host": (421, "the Host is not one that this server answers for"),
    "unreadable_image": (422, "the image is damaged"),
    "decoding_limit": (422, "decoding takes more time or memory than an image is given"),
    "cannot_explain": (422, "this model cannot be asked for that"),
    "overloaded": (429, "too much is under way; try again after Retry-After seconds"),
    "internal": (500, "an error of the server, written to its log"),
    "stopping": (503, "the server is starting or stopping"),
    "too_late": (504, "the answer was not ready before the deadline"),
}
RETRY_AFTER = "1"


class Refusal(Exception):
    def __init__(self, code: str, message: str, allow: str = "") -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.status = REFUSALS[code][0]
        self.headers: dict[str, str] = {}
        if self.status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"
        if self.status in (429, 503):
            self.headers["Retry-After"] = RETRY_AFTER
        if self.status in (408, 413):
            self.headers["Connection"] = "close"  # the rest of the body is not wanted
        if allow:
            self.headers["Allow"] = allow

    def json(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}
