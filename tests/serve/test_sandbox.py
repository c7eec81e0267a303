"""A decoder process can read the libraries that it needs, and little else."""

import ctypes
import io
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.faults.mutations import images
from vitkit.data.preprocess import Preprocess
from vitkit.serve.decoder_worker import decode_request
from vitkit.serve.limits import MIB, Limits
from vitkit.serve.sandbox import enter_sandbox, landlock_version

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of other systems is weaker")
landlock = pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")


def in_sandbox(work: Callable[[], str], memory: int = 256 * MIB) -> str:
    """Return what `work` returns, or the class of the exception it raises, in a forked process in the sandbox."""
    ours, theirs = os.pipe()
    if not (pid := os.fork()):
        try:
            enter_sandbox(memory)
            result = work()
        except BaseException as error:
            result = type(error).__name__
        os.write(theirs, result.encode()[:4000])
        os._exit(0)
    os.close(theirs)
    with open(ours, encoding="utf-8") as pipe:
        result = pipe.read()
    os.waitpid(pid, 0)
    return result


def connect(address: tuple[str, int]) -> str:
    with socket.socket() as client:
        client.connect(address)
    return "connected"


@landlock
def test_files_outside_of_the_libraries_cannot_be_read_or_written(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token", encoding="utf-8")
    assert in_sandbox(lambda: secret.read_text("utf-8")) == "PermissionError"
    assert in_sandbox(lambda: Path("/etc/passwd").read_text("utf-8")) == "PermissionError"
    assert in_sandbox(lambda: str((tmp_path / "new").write_text("x", encoding="utf-8"))) == "PermissionError"
    assert in_sandbox(lambda: str(os.listdir("/"))) == "PermissionError"
    assert in_sandbox(lambda: Path(os.__file__).read_text("utf-8")[:1]) != "PermissionError"  # for late imports


@landlock
def test_programs_cannot_be_started_and_other_processes_not_signalled() -> None:
    assert in_sandbox(lambda: subprocess.check_output(["/bin/true"]).decode()) in ("PermissionError", "BlockingIOError")
    if landlock_version() >= 6:
        assert in_sandbox(lambda: str(os.kill(os.getppid(), 0))) == "PermissionError"


@landlock
@pytest.mark.skipif(landlock_version() < 4, reason="this Landlock does not know TCP")
def test_tcp_connections_are_denied() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        assert connect(address) == "connected"
        assert in_sandbox(lambda: connect(address)) == "PermissionError"


@linux
def test_privileges_cannot_be_gained_and_memory_is_limited() -> None:
    assert in_sandbox(lambda: str(_no_new_privs())) == "1"
    assert in_sandbox(lambda: str(len(bytearray(300 * MIB)))) == "MemoryError"


def _no_new_privs() -> int:
    return int(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))  # PR_GET_NO_NEW_PRIVS


@linux
def test_every_format_decodes_to_the_same_pixels_as_outside() -> None:
    preprocess = Preprocess(size=(24, 24))
    for file in images():
        outside = decode_request(file, preprocess, 10_000)
        assert outside[:1] == b"g"
        assert in_sandbox(lambda file=file: str(hash(decode_request(file, preprocess, 10_000)))) == str(hash(outside))


def grey16_png(height: int, width: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.zeros((height, width), np.uint16)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def transparent_png(height: int, width: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGBA", (width, height)).save(file, "PNG", compress_level=1)
    return file.getvalue()


@linux
@pytest.mark.parametrize("make", [grey16_png, transparent_png])
def test_the_largest_images_within_the_limit_fit_the_memory_of_a_decoder(make: Callable[[int, int], bytes]) -> None:
    height, width = 6000, 8000
    assert height * width <= Limits.image_pixels
    file, preprocess = make(height, width), Preprocess(size=(24, 24))
    limit = Limits.decode_memory - 256 * MIB  # with some reserve
    assert in_sandbox(lambda: decode_request(file, preprocess, Limits.image_pixels)[:1].decode(), limit) == "g"
