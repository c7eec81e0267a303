"""What the server does not take, and how it says so."""

import json
import os
import signal
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from vitkit.cli.main import main
from vitkit.errors import WorkError

from .client import Server, encoded, picture, running, until

TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def strict(folders: tuple[Path, Path]) -> Iterator[Server]:
    """Everything as little as it can be, and a token."""
    words = [str(folders[0]), "--queue", "1", "--deadline", "0.0005", "--body", "0.1", "--pixels", "0.01"]
    with running(*words, environment={**os.environ, "VITKIT_TOKEN": TOKEN}) as found:
        yield found


def allowed(server: Server, path: str, body: bytes, **more: str) -> object:
    return server.post(path, body, Authorization=f"Bearer {TOKEN}", **more)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 415, "unsupported_format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "unsupported_format"),
        (b"%PDF-1.7 and so on and on", 415, "unsupported_format"),
        (picture()[:200], 422, "unreadable_image"),
        (picture()[:8], 422, "unreadable_image"),
        (b"\xff\xd8\xff" + bytes(100), 422, "unreadable_image"),
    ],
)
def test_bad_images_are_refused_by_content(server: Server, body: bytes, status: int, code: str) -> None:
    for path in ("/v1/predict", "/v1/attention", "/v1/explain"):
        answer = server.post(path, body, Content_Type="image/png")
        assert (answer.status, answer.code) == (status, code), path


@pytest.mark.parametrize(
    "query",
    ["top=0", "top=x", "top=1&top=2", "tpo=1", "top=" + "9" * 40, "model=pets&method=rollout"],
)
def test_bad_parameters_are_named(server: Server, query: str) -> None:
    answer = server.post(f"/v1/predict?{query}", picture())
    assert (answer.status, answer.code) == (400, "bad_parameter")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("method=attention&layer=3", 422), ("method=attention&query=9,9", 422), ("method=gradient&head=1", 422),
        ("class=unicorn", 400), ("class=3", 400), ("query=1,1,1", 400), ("method=random", 400), ("opacity=101", 400),
    ],
)  # fmt: skip
def test_what_cannot_be_explained_is_said(server: Server, query: str, status: int) -> None:
    assert server.post(f"/v1/explain?{query}", picture()).status == status


def test_forms_have_to_be_whole_and_hold_files(server: Server) -> None:
    kind = "multipart/form-data; boundary=b0"
    field = b'--b0\r\nContent-Disposition: form-data; name="url"\r\n\r\nhttp://127.0.0.1/\r\n--b0--\r\n'
    half = b'--b0\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\nabc'
    for body in (field, half, b"", b"--b0--\r\n", b"no boundary at all"):
        answer = server.post("/v1/predict", body, Content_Type=kind)
        assert (answer.status, answer.code) == (400, "bad_request"), body
    assert server.form("/v1/explain", {"a": picture(), "b": picture()}).code == "too_many_images"
    assert server.form("/v1/predict", dict.fromkeys(map(str, range(65)), b"")).code == "too_many_images"


def test_unknown_addresses_and_methods(server: Server) -> None:
    assert (server.get("/etc/passwd").status, server.get("/etc/passwd").code) == (404, "not_found")
    assert server.get("/page/../app.py").status == 404
    assert server.get("/page/%2e%2e/app.py").status == 404
    answer = server.get("/v1/predict")
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", "POST")
    assert server.get("/v1/samples/99").code == "not_found"


def test_names_of_other_sites_are_not_answered(server: Server) -> None:
    """DNS rebinding: the page of another site, whose name suddenly points here."""
    assert server.get("/v1/models", Host="rebound.example").code == "bad_host"
    assert server.get("/v1/models", Host=f"rebound.example:{server.port}").code == "bad_host"
    assert server.get("/v1/models", Host=f"localhost:{server.port}").status == 200
    own = f"127.0.0.1:{server.port}"
    assert server.get("/v1/models", Host=own, Origin=f"http://{own}").status == 200
    for origin in ("http://evil.example", "null", f"http://localhost:{server.port}", "http://127.0.0.1:1", "http://["):
        assert server.get("/v1/models", Host=own, Origin=origin).code == "bad_origin", origin
    assert server.post("/v1/predict", picture(), Sec_Fetch_Site="cross-site").code == "bad_origin"


def test_every_answer_carries_the_headers_that_protect_a_browser(server: Server) -> None:
    for path in ("/", "/page/app.js", "/v1/models", "/nothing"):
        headers = server.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def test_without_the_token_only_the_page_and_the_health_are_shown(strict: Server) -> None:
    for path in ("/v1/models", "/v1/samples/0", "/metrics", "/openapi.json"):
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer ü"}):
            answer = strict.get(path, **headers)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        assert strict.get(path, Authorization=f"Bearer {TOKEN}").status == 200
    assert [strict.get(path).status for path in ("/", "/page/app.js", "/healthz", "/readyz")] == [200] * 4


def test_an_answer_that_is_late_is_refused(strict: Server) -> None:
    answer = allowed(strict, "/v1/predict", encoded(np.zeros((90, 90, 3), np.uint8)))
    assert (answer.status, answer.code) == (504, "too_late")


def head(path: str, length: int) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()


def receive(connection: socket.socket) -> bytes:
    found = b""
    while chunk := connection.recv(65536):
        found += chunk
        if b"\r\n\r\n" in found and found.count(b'"message"'):
            break
    return found


def test_a_full_house_says_when_to_come_again(strict: Server) -> None:
    """One image is on its way and fills the only place."""
    with strict.socket() as first:
        first.sendall(head("/v1/predict", 1000) + picture()[:100])
        metrics = lambda: strict.get("/metrics", Authorization=f"Bearer {TOKEN}").content  # noqa: E731
        until(lambda: b"vitkit_images_waiting 1\n" in metrics())
        answer = allowed(strict, "/v1/predict", picture())
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "overloaded", "1")
    until(lambda: b"vitkit_images_waiting 0\n" in metrics())
    assert b"vitkit_bytes_held 0\n" in metrics()


def test_bodies_over_the_limit_are_refused_before_they_are_read(strict: Server) -> None:
    with strict.socket() as stated:
        stated.sendall(head("/v1/predict", 10**9))
        assert b"body_too_large" in receive(stated)
    with strict.socket() as chunked:  # no length is stated: counted while it streams
        chunked.sendall(head("/v1/predict", 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"))
        chunk = b"10000\r\n" + b"\x89PNG\r\n\x1a\n" + bytes(65528) + b"\r\n"
        chunked.sendall(chunk)
        chunked.sendall(chunk)
        answer = receive(chunked)
    assert b"413" in answer.split(b"\r\n")[0]
    assert b"body_too_large" in answer


@pytest.mark.parametrize(
    "request_",
    [
        b"no HTTP at all\r\n\r\n",
        b"HEAD / HTTP/9\r\n\r\n",
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n",
    ],
)
def test_what_is_no_http_is_answered_in_the_same_form(server: Server, request_: bytes) -> None:
    with server.socket() as connection:
        connection.sendall(request_)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    head, body = answer.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "bad_request"


def bomb(side: int) -> bytes:
    """A PNG whose header states side × side pixels and whose data holds next to nothing."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_000, 100_000, 2**31 - 1])
def test_images_that_state_too_many_pixels_are_refused(server: Server, side: int) -> None:
    answer = server.post("/v1/predict", bomb(side))
    assert (answer.status, answer.code) == (413, "too_many_pixels")


def test_what_was_taken_is_answered_after_sigterm(folders: tuple[Path, Path]) -> None:
    content = picture()
    with running(str(folders[0])) as server, server.socket() as connection:
        connection.sendall(head("/v1/predict", len(content)) + content[:100])
        until(lambda: b"vitkit_images_waiting 1\n" in server.get("/metrics").content)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: not listens(server))
        connection.sendall(content[100:])
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        assert answer.startswith(b"HTTP/1.1 200")
        assert "predictions" in json.loads(answer.split(b"\r\n\r\n", 1)[1])["results"][0]
        assert server.process.wait(60) == 0


def test_a_server_that_cannot_start_says_so_in_one_line(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise WorkError("no process to decode in")

    monkeypatch.setattr("vitkit.serve.service.Decoders", fails)
    assert main(["serve", str(folders[0]), "--port", "0"]) == 1
    assert capsys.readouterr().err == "vitkit: no process to decode in\n"


def listens(server: Server) -> bool:
    try:
        server.socket().close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "needs a token"),
        (["--host", "::"], "needs a token"),
        (["--port", "70000"], "cannot listen"),
        (["--batch", "0"], "above 0"),
        (["--samples", "/nowhere"], "no images"),
        (["--engine", "fast"], "unknown engine"),
    ],
)
def test_what_cannot_be_served_is_refused_at_the_start(
    folders: tuple[Path, Path],
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VITKIT_TOKEN", raising=False)
    assert main(["serve", str(folders[0]), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_short_token_is_refused(folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "token").write_text("short\n")
    assert main(["serve", str(folders[0]), "--token-file", str(tmp_path / "token")]) == 2
    assert "5 characters" in capsys.readouterr().err
