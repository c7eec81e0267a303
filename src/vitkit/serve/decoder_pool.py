"""Untrusted images are decoded in disposable worker processes.

Each thread of the pool owns one decoder process (see `decoder_worker`). A decoder that crashes, hangs or violates the
protocol is killed and replaced. An image whose decoder crashed is tried once more by a new one. A thread that cannot
start a decoder retries with growing pauses; while no thread has one, images get status 503. The server process never
parses an image.
"""

import contextlib
import json
import logging
import os
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
from vitkit.serve.sandbox import landlock_version

log = logging.getLogger("vitkit.serve")

_START_SECONDS = 60.0  # for the imports of the fork server, on a busy machine
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts to start a decoder
_MAX_MESSAGE = 1000  # bytes
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

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
        self.closed = threading.Event()
        self.lock = threading.Lock()  # for the two below
        self.working = limits.decoders  # threads that have a decoder
        self.lost_at = 0.0  # when the last of them lost it
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
        if self.working:
            self.jobs.put(job)
        else:
            job.result.set_exception(_no_decoder())
        return job.result

    def seconds_without(self) -> float:
        """Return for how many seconds there has been no decoder at all."""
        with self.lock:
            return 0.0 if self.working else time.monotonic() - self.lost_at

    def close(self) -> None:
        self.closed.set()
        for _ in self.threads:
            self.jobs.put(None)
        for thread in self.threads:
            thread.join(self.limits.decode_seconds + 1)
        self.fork_server.close()

    def _work(self, decoder: "_Decoder | None") -> None:
        images = 0  # that this decoder has decoded
        while decoder and (job := self.jobs.get()):
            if not job.result.set_running_or_notify_cancel():
                continue
            used = decoder
            decoder = self._answer(decoder, job)
            images = images + 1 if decoder is used else 0
            if decoder is None:
                decoder = self._start_again()
            elif images >= self.limits.decoder_images:  # whatever an image left behind in it ends here
                with contextlib.suppress(WorkError):
                    decoder, images = self.fork_server.start(), 0
                    self.fork_server.kill(used)
        if decoder:
            decoder.channel.close()

    def _answer(self, decoder: "_Decoder", job: _Job) -> "_Decoder | None":
        """Decode an image, and return the decoder for the next one; None if none can be started now."""
        crash = None
        for _ in range(2):
            try:
                job.result.set_result(self._decode(decoder, job))
                return decoder
            except APIError as error:
                job.result.set_exception(error)
                return self._replace(decoder) if error.code == "decoding_limit" else decoder
            except Exception as error:  # the decoder died or violated the protocol: it is no longer trusted
                crash = error
            if (fresh := self._replace(decoder)) is None:
                job.result.set_exception(_no_decoder())
                return None
            decoder = fresh
        crashed = APIError("unreadable_image", "the image cannot be decoded: it crashed two decoders")
        crashed.__cause__ = crash
        job.result.set_exception(crashed)
        return decoder

    def _start_again(self) -> "_Decoder | None":
        """Try to start a decoder until it works. None: the pool was closed first."""
        with self.lock:
            self.working -= 1
            self.lost_at = time.monotonic()
        pause = _FIRST_PAUSE
        while True:
            if not self.working:
                self._refuse_waiting()
            if self.closed.wait(pause):
                return None
            try:
                decoder = self.fork_server.start()
            except WorkError as error:
                pause = min(2 * pause, _LONGEST_PAUSE)
                log.warning("%s; next attempt in %g s", error, pause)
                continue
            with self.lock:
                self.working += 1
            return decoder

    def _refuse_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while job := self.jobs.get_nowait():
                if job.result.set_running_or_notify_cancel():
                    job.result.set_exception(_no_decoder())
            self.jobs.put(None)  # it was for a thread

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

    def _replace(self, decoder: "_Decoder") -> "_Decoder | None":
        self.on_replace()
        self.fork_server.kill(decoder)
        try:
            return self.fork_server.start()
        except WorkError as error:
            log.warning("%s", error)
            return None


def _no_decoder() -> APIError:
    return APIError("unavailable", "no image decoder can be started now: retry later")


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
        if not landlock_version():
            log.warning("this system has no Landlock: image decoders can read files of this user")

    def _open(self) -> None:
        # Decoders need no token and no other secret of the environment.
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-m", "vitkit.serve.decoder_worker", str(theirs.fileno()), self.settings]
        with theirs:
            try:
                self.process = subprocess.Popen(
                    words, pass_fds=[theirs.fileno()], env=environment, cwd="/", stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )  # fmt: skip
            except BaseException:
                ours.close()
                raise
        ours.settimeout(_START_SECONDS)
        self.control = ours

    def start(self) -> _Decoder:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # no descriptor left: the fork server and its other decoders are well
            raise WorkError(f"the image decoder process does not start: {error.strerror}") from error
        try:
            with self.lock, theirs:
                return _Decoder(ours, self._fork(theirs))
        except (OSError, EOFError, WorkError) as error:
            ours.close()
            raise WorkError(f"the image decoder process does not start: {error or type(error).__name__}") from error

    def _fork(self, channel: socket.socket) -> int:
        try:
            status, number = self._ask(channel)
        except (OSError, EOFError):  # it died
            self.control.close()
            self.process.kill()
            self.process.wait()
            self._open()
            status, number = self._ask(channel)
        if status == b"-":
            raise WorkError(os.strerror(number))
        return number

    def _ask(self, channel: socket.socket) -> tuple[bytes, int]:
        socket.send_fds(self.control, [CONTROL.pack(b"+", 0)], [channel.fileno()])
        status, number = CONTROL.unpack(receive(self.control, CONTROL.size))
        return status, number

    def kill(self, decoder: _Decoder) -> None:
        decoder.channel.close()
        with self.lock, contextlib.suppress(OSError):  # if the fork server died, its decoders are dead
            self.control.sendall(CONTROL.pack(b"-", decoder.pid))

    def close(self) -> None:
        self.control.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
