"""API errors carry the status and headers of their code."""

import pytest

from vitkit.serve.errors import ERROR_CODES, APIError


@pytest.mark.parametrize("code", ERROR_CODES)
def test_every_code_has_a_status_and_a_json_body(code: str) -> None:
    error = APIError(code, "why")
    assert 400 <= error.status < 600
    assert error.json() == {"error": {"code": code, "message": "why"}}
    assert ("Retry-After" in error.headers) == (error.status in (429, 503))
    assert (error.headers.get("Connection") == "close") == (error.status in (408, 413))


def test_headers_of_401_and_405() -> None:
    assert APIError("unauthorized", "").headers == {"WWW-Authenticate": "Bearer"}
    assert APIError("method_not_allowed", "", allow="POST").headers == {"Allow": "POST"}
