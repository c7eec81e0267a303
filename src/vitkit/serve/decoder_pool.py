"""Untrusted images are decoded in disposable worker processes.

Each thread of the pool owns one decoder process (see `decoder_worker`). A decoder that crashes, hangs or violates the
protocol is killed and replaced, and its image gets an error. The server process never parses an image.
"""

import contextlib
import json
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WorkError
from vitkit.serve.decoder_worker import CONTROL, CORRUPT, OK, OUT_OF_MEMORY, REPLY, REQUEST, TOO_LARGE, receive
from vitkit.serve.errors import APIError
from vitkit.serve.limits import Limits

_START_SECONDS = 60.0  # for the imports of the fork server, on a busy machine
_MAX_MESSAGE = 1000  # bytes

_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def check_format(encoded: bytes) -> None:
    """Raise unless the first bytes are those of a supported format. Clients choose names and types freely."""
    if encoded.startswith(_MAGIC) or (encoded.startswith(b"RIFF") and encoded.startswith(b"WEBP", 8)):
        return
    what = "is empty" if not encoded else "is not an image in a supported format"
    raise APIError("unsupported_format", f"the content {what}: send JPEG, PNG, WebP, BMP, GIF or TIFF")


@dataclass(frozen=True)
class Decoded:
    pixels: np.ndarray  # (H, W, C) uint8, the input of the model
    original_size: tuple[int, int]  # height, width


@dataclass(frozen=True)
class _Job:
    index: int
    encoded: bytes
    result: "Future[Decoded]"


class DecoderPool:
    def __init__(
        self, preprocess: Sequence[Preprocess], limits: Limits, on_replace: Callable[[], None] = lambda: None
    ) -> None:
        self.preprocess, self.limits, self.on_replace = list(preprocess), limits, on_replace
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.fork_server = _ForkServer(self.preprocess, limits)
        self.threads = [
            threading.Thread(target=self._work, args=(self.fork_server.start(),), name=f"decoder-{i}", daemon=True)
            for i in range(limits.decoders)
        ]
        for thread in self.threads:
            thread.start()

    def submit(self, index: int, encoded: bytes) -> "Future[Decoded]":
        """Decode with the preprocessing of this index. A future that is cancelled before its turn is skipped."""
        job = _Job(index, encoded, Future())
        self.jobs.put(job)
        return job.result

    def close(self) -> None:
        for _ in self.threads:
            self.jobs.put(None)
        for thread in self.threads:
            thread.join(self.limits.decode_seconds + 1)
        self.fork_server.close()

    def _work(self, decoder: "_Decoder") -> None:
        while job := self.jobs.get():
            if not job.result.set_running_or_notify_cancel():
                continue
            try:
                job.result.set_result(self._decode(decoder, job))
            except APIError as error:
                job.result.set_exception(error)
                if error.code == "decoding_limit":
                    decoder = self._replace(decoder)
            except Exception as error:  # the decoder died or violated the protocol: it is no longer trusted
                crashed = APIError("unreadable_image", "the image cannot be decoded: it crashed its decoder")
                crashed.__cause__ = error
                job.result.set_exception(crashed)
                decoder = self._replace(decoder)
        decoder.channel.close()

    def _decode(self, decoder: "_Decoder", job: _Job) -> Decoded:
        p, until = self.preprocess[job.index], time.monotonic() + self.limits.decode_seconds
        expected = p.size[0] * p.size[1] * p.channels
        try:
            decoder.channel.settimeout(self.limits.decode_seconds)
            decoder.channel.sendall(REQUEST.pack(job.index, len(job.encoded)) + job.encoded)
            status, height, width, length = REPLY.unpack(receive(decoder.channel, REPLY.size))
            if length != expected if status == OK else length > _MAX_MESSAGE:
                raise ValueError(f"a reply of {length} bytes")
            decoder.channel.settimeout(max(until - time.monotonic(), 0.1))
            content = receive(decoder.channel, length)
        except TimeoutError:
            seconds = f"{self.limits.decode_seconds:g}"
            raise APIError("decoding_limit", f"the image takes more than {seconds} s to decode") from None
        if status == OK:
            return Decoded(np.frombuffer(content, np.uint8).reshape(*p.size, p.channels), (height, width))
        raise {
            CORRUPT: APIError("unreadable_image", content.decode(errors="replace")),
            TOO_LARGE: APIError("too_many_pixels", content.decode(errors="replace")),
            OUT_OF_MEMORY: APIError("decoding_limit", "decoding the image exceeds the memory limit of one image"),
        }[status]

    def _replace(self, decoder: "_Decoder") -> "_Decoder":
        self.on_replace()
        return self.fork_server.replace(decoder)


@dataclass(frozen=True)
class _Decoder:
    channel: socket.socket
    pid: int


class _ForkServer:
    """Handle of the fork server process, which is restarted if it dies."""

    def __init__(self, preprocess: Sequence[Preprocess], limits: Limits) -> None:
        self.settings = json.dumps(
            dict(preprocess=[p.to_dict() for p in preprocess], pixels=limits.image_pixels, memory=limits.decode_memory)
        )
        self.lock = threading.Lock()
        self._open()

    def _open(self) -> None:
        self.control, theirs = socket.socketpair()
        self.control.settimeout(_START_SECONDS)
        words = [sys.executable, "-m", "vitkit.serve.decoder_worker", str(theirs.fileno()), self.settings]
        self.process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        theirs.close()

    def start(self) -> _Decoder:
        with self.lock:
            try:
                return self._start()
            except (OSError, EOFError):
                self.process.kill()
                self.process.wait()
                self._open()
            try:
                return self._start()
            except (OSError, EOFError) as error:
                raise WorkError("the image decoder process does not start; the lines above say why") from error

    def _start(self) -> _Decoder:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [CONTROL.pack(b"+", 0)], [theirs.fileno()])
        _, pid = CONTROL.unpack(receive(self.control, CONTROL.size))
        return _Decoder(ours, pid)

    def replace(self, decoder: _Decoder) -> _Decoder:
        decoder.channel.close()
        with self.lock, contextlib.suppress(OSError):  # if the fork server died, `start` restarts it
            self.control.sendall(CONTROL.pack(b"-", decoder.pid))
        return self.start()

    def close(self) -> None:
        self.control.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
