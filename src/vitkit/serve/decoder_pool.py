"""Files of strangers are decoded in processes that may die of them.

Each thread here owns one decoder (see `nursery`). One that crashes, hangs or breaks the protocol is killed and
replaced, and its image is refused; the server never parses an image itself.
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
from vitkit.serve.decoder_worker import BAD, CONTROL, GOOD, LARGE, MEMORY, REPLY, REQUEST, receive
from vitkit.serve.errors import Refusal
from vitkit.serve.limits import Limits

_START_SECONDS = 60.0  # for the imports of the nursery, on a busy machine
_LONGEST_REASON = 1000

SIGNATURES: tuple[tuple[bytes, int, bytes], ...] = (  # how files of the formats begin: bytes, then more at an offset
    (b"\xff\xd8\xff", 0, b""),
    (b"\x89PNG\r\n\x1a\n", 0, b""),
    (b"RIFF", 8, b"WEBP"),
    (b"BM", 0, b""),
    (b"GIF87a", 0, b""),
    (b"GIF89a", 0, b""),
    (b"II*\0", 0, b""),
    (b"MM\0*", 0, b""),
    (b"II+\0", 0, b""),
    (b"MM\0+", 0, b""),
)


def check_format(encoded: bytes) -> None:
    """By content: names and stated types are a client's to choose."""
    for start, offset, more in SIGNATURES:
        if encoded.startswith(start) and encoded.startswith(more, offset):
            return
    what = "is empty" if not encoded else "is not an image that is taken"
    raise Refusal("unsupported_format", f"the content {what}: send JPEG, PNG, WebP, BMP, GIF or TIFF")


@dataclass(frozen=True)
class Decoded:
    pixels: np.ndarray  # (H, W, C) uint8, as the model takes them
    original: tuple[int, int]  # height, width


@dataclass(frozen=True)
class _Job:
    which: int
    encoded: bytes
    result: "Future[Decoded]"


class Decoders:
    def __init__(
        self, preprocess: Sequence[Preprocess], limits: Limits, replaced: Callable[[], None] = lambda: None
    ) -> None:
        self.preprocess, self.limits, self.replaced = list(preprocess), limits, replaced
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.nursery = _Nursery(self.preprocess, limits)
        self.threads = [
            threading.Thread(target=self._work, args=(self.nursery.start(),), name=f"decoder-{i}", daemon=True)
            for i in range(limits.decoders)
        ]
        for thread in self.threads:
            thread.start()

    def submit(self, which: int, encoded: bytes) -> "Future[Decoded]":
        """`which` of the preprocessings. A future that is cancelled before its turn costs nothing more."""
        job = _Job(which, encoded, Future())
        self.jobs.put(job)
        return job.result

    def close(self) -> None:
        for _ in self.threads:
            self.jobs.put(None)
        for thread in self.threads:
            thread.join(self.limits.decode_seconds + 1)
        self.nursery.close()

    def _work(self, decoder: "_Decoder") -> None:
        while job := self.jobs.get():
            if not job.result.set_running_or_notify_cancel():
                continue
            try:
                job.result.set_result(self._decode(decoder, job))
            except Refusal as refusal:
                job.result.set_exception(refusal)
                if refusal.code == "decoding_limit":
                    decoder = self._replace(decoder)
            except Exception as error:  # the decoder is gone, or talks nonsense: it is not to be trusted any more
                lost = Refusal("unreadable_image", "the image cannot be decoded: it broke its decoder")
                lost.__cause__ = error
                job.result.set_exception(lost)
                decoder = self._replace(decoder)
        decoder.channel.close()

    def _decode(self, decoder: "_Decoder", job: _Job) -> Decoded:
        p, until = self.preprocess[job.which], time.monotonic() + self.limits.decode_seconds
        expected = p.size[0] * p.size[1] * p.channels
        try:
            decoder.channel.settimeout(self.limits.decode_seconds)
            decoder.channel.sendall(REQUEST.pack(job.which, len(job.encoded)) + job.encoded)
            status, height, width, length = REPLY.unpack(receive(decoder.channel, REPLY.size))
            if length != expected if status == GOOD else length > _LONGEST_REASON:
                raise ValueError(f"a reply of {length} bytes")
            decoder.channel.settimeout(max(until - time.monotonic(), 0.1))
            content = receive(decoder.channel, length)
        except TimeoutError:
            seconds = f"{self.limits.decode_seconds:g}"
            raise Refusal("decoding_limit", f"the image takes more than {seconds} s to decode") from None
        if status == GOOD:
            return Decoded(np.frombuffer(content, np.uint8).reshape(*p.size, p.channels), (height, width))
        raise {
            BAD: Refusal("unreadable_image", content.decode(errors="replace")),
            LARGE: Refusal("too_many_pixels", content.decode(errors="replace")),
            MEMORY: Refusal("decoding_limit", "the image takes more memory to decode than it is given"),
        }[status]

    def _replace(self, decoder: "_Decoder") -> "_Decoder":
        self.replaced()
        return self.nursery.replace(decoder)


@dataclass(frozen=True)
class _Decoder:
    channel: socket.socket
    pid: int


class _Nursery:
    """The server's end of it. If the process itself dies, a new one is started."""

    def __init__(self, preprocess: Sequence[Preprocess], limits: Limits) -> None:
        self.settings = json.dumps(
            dict(preprocess=[p.to_dict() for p in preprocess], pixels=limits.pixels, memory=limits.decode_memory)
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
                raise WorkError("the process that decodes images does not start: its message is above") from error

    def _start(self) -> _Decoder:
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [CONTROL.pack(b"+", 0)], [theirs.fileno()])
        _, pid = CONTROL.unpack(receive(self.control, CONTROL.size))
        return _Decoder(ours, pid)

    def replace(self, decoder: _Decoder) -> _Decoder:
        decoder.channel.close()
        with self.lock, contextlib.suppress(OSError):  # if the nursery itself died, `start` sees to that
            self.control.sendall(CONTROL.pack(b"-", decoder.pid))
        return self.start()

    def close(self) -> None:
        self.control.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
