"""The decoder process checks headers before it decodes."""

import errno
import io
import socket
import struct
import threading
import zlib

import numpy as np
import pytest
from PIL import Image

from vitkit.data.preprocess import Preprocess
from vitkit.serve.decoder_worker import (
    CONTROL,
    CORRUPT,
    OK,
    REPLY,
    TOO_LARGE,
    decode_request,
    receive,
    run_fork_server,
)

from .client import Server, noise_png


def bomb(side: int) -> bytes:
    """Return a PNG whose header states side × side pixels and whose data is almost empty."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [8_000, 100_000, 2**31 - 1])
def test_images_that_state_too_many_pixels_are_rejected(server: Server, side: int) -> None:
    response = server.post("/v1/predict", bomb(side))
    assert (response.status, response.code) == (413, "too_many_pixels")


def test_a_reply_has_a_status_the_original_size_and_the_pixels() -> None:
    preprocess, content = Preprocess(size=(8, 8)), noise_png(20, 30)
    reply = decode_request(content, preprocess, 20 * 30)
    assert REPLY.unpack(reply[: REPLY.size]) == (OK, 20, 30, 8 * 8 * 3)
    assert reply[REPLY.size :] == preprocess.array(content).tobytes()
    assert decode_request(content, preprocess, 20 * 30 - 1)[:1] == TOO_LARGE
    twelve, scan = preprocess.replace(range=(0, 4095)), io.BytesIO()
    Image.fromarray(np.arange(4096, dtype=np.uint16).reshape(64, 64)).save(scan, "PNG")
    assert decode_request(scan.getvalue(), twelve, 4096)[REPLY.size :] == twelve.array(scan.getvalue()).tobytes()
    assert twelve.array(scan.getvalue()).max() > 200 > 20 > preprocess.array(scan.getvalue()).max()
    assert decode_request(content[:100], preprocess, 20 * 30)[:1] == CORRUPT


def test_a_fork_server_without_memory_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> int:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("os.fork", fails)
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=run_fork_server, args=(theirs, [Preprocess()], 100, 100))
    thread.start()
    for _ in range(2):
        channel, other = socket.socketpair()
        with channel, other:
            socket.send_fds(ours, [CONTROL.pack(b"+", 0)], [other.fileno()])
            assert CONTROL.unpack(receive(ours, CONTROL.size)) == (b"-", errno.ENOMEM)
    ours.close()
    thread.join(10)
    assert not thread.is_alive()
    theirs.close()
