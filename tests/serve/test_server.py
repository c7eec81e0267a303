"""Start-up, exposure checks and graceful shutdown."""

import json
import logging
import os
import resource
import signal
from pathlib import Path

import pytest

from vitkit.cli.main import main
from vitkit.errors import ConfigError, UsageError, WorkError
from vitkit.serve.server import _process_settings, check_exposure, connection_limit, is_loopback, read_token

from .client import Server, noise_png, post_header, running, wait_until


def test_requests_in_flight_are_answered_after_sigterm(folders: tuple[Path, Path]) -> None:
    content = noise_png()
    with running(str(folders[0])) as server, server.socket() as connection:
        connection.sendall(post_header("/v1/predict", len(content)) + content[:100])
        wait_until(lambda: b"vitkit_images_waiting 1.0\n" in server.get("/metrics").content)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not listens(server))
        connection.sendall(content[100:])
        response = b""
        while chunk := connection.recv(65536):
            response += chunk
        assert response.startswith(b"HTTP/1.1 200")
        assert "predictions" in json.loads(response.split(b"\r\n\r\n", 1)[1])["results"][0]
        assert server.process.wait(60) == 0


def listens(server: Server) -> bool:
    try:
        server.socket().close()
    except OSError:
        return False
    return True


def test_a_failed_start_is_one_line(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise WorkError("no process to decode in")

    monkeypatch.setattr("vitkit.serve.service.DecoderPool", fails)
    assert main(["serve", str(folders[0]), "--port", "0"]) == 1
    assert capsys.readouterr().err == "vitkit: no process to decode in\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "needs a token"),
        (["--host", "::"], "needs a token"),
        (["--port", "70000"], "cannot listen"),
        (["--batch", "0"], "--batch 0: must be above 0"),
        (["--samples", "/nowhere"], "no images"),
        (["--engine", "fast"], "unknown engine"),
    ],
)
def test_bad_options_are_errors_at_the_start(
    folders: tuple[Path, Path],
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VITKIT_TOKEN", raising=False)
    assert main(["serve", str(folders[0]), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_system_without_fork_is_named(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr("os.fork")
    assert main(["serve", str(folders[0]), "--port", "0"]) == 2
    assert capsys.readouterr().err == (
        "vitkit: vitkit serve decodes images in forked processes: run it on Linux or macOS\n"
    )


def test_short_tokens_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("short\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="5 characters"):
        check_exposure("127.0.0.1", read_token(str(tmp_path / "token")))
    monkeypatch.setenv("VITKIT_TOKEN", "from-the-environment")
    assert read_token(None) == "from-the-environment"


def test_only_loopback_addresses_need_no_token() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::")] == [True] * 3 + [
        False
    ] * 2


def test_signal_handlers_and_log_levels_are_restored() -> None:
    numbers, log = (signal.SIGTERM, signal.SIGINT), logging.getLogger("python_multipart")
    before = [signal.getsignal(n) for n in numbers], log.level
    with _process_settings():
        assert log.level == logging.CRITICAL
        os.kill(os.getpid(), signal.SIGTERM)  # ignored, or the test would end here
    assert ([signal.getsignal(n) for n in numbers], log.level) == before


def test_connections_are_limited_by_the_descriptors_of_the_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = len(os.listdir("/dev/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
        assert connection_limit(100) == 100
        assert connection_limit(hard) <= hard - in_use  # the soft limit has been raised as far as possible
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_limit_of_descriptors_that_leaves_no_connection_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100, 100))
    with pytest.raises(UsageError, match="limit of 100 open files is too low to serve: raise it with ulimit -n"):
        connection_limit(1024)
