"""The process from which decoders are forked: `python -m vitkit.serve.decoder_worker FD SETTINGS`.

It imports Pillow and the preprocessing once and never touches an image, so that a new decoder costs a fork. A
decoder has limits on its memory, writes no file, and speaks raw bytes: nothing that it sends is ever unpickled.

Control messages of the server, 5 bytes: "+" and a descriptor to start a decoder on it, "-" and a process id to end one.
Requests to a decoder: which preprocessing, length, file. Replies: a status, the original's height and width, length,
and the pixels or a reason.
"""

import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from vitkit.data.decode import decode, read_header
from vitkit.data.preprocess import Preprocess
from vitkit.errors import CorruptImageError

CONTROL = struct.Struct("!cI")
REQUEST = struct.Struct("!HI")
REPLY = struct.Struct("!cIII")
GOOD, BAD, LARGE, MEMORY = b"g", b"b", b"l", b"m"


def receive(channel: socket.socket, count: int) -> bytearray:
    """Exactly so many bytes, or EOFError."""
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        read = channel.recv_into(view[got:])
        if not read:
            raise EOFError
        got += read
    return data


def tend(control: socket.socket, preprocess: Sequence[Preprocess], pixels: int, memory: int) -> None:
    """Until the server is gone; the decoders go with it."""
    children: set[int] = set()
    try:
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, CONTROL.size, 1)
            if len(message) < CONTROL.size:
                return
            order, number = CONTROL.unpack(message)
            if order == b"+":
                pid = os.fork()
                if not pid:
                    control.close()
                    _live(socket.socket(fileno=descriptors[0]), preprocess, pixels, memory)
                os.close(descriptors[0])
                children.add(pid)
                control.sendall(CONTROL.pack(b"+", pid))
            elif number in children:  # not reaped before, so the number is still this child's
                _end(number)
                children.remove(number)
    finally:
        for pid in children:
            _end(pid)


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _live(channel: socket.socket, preprocess: Sequence[Preprocess], pixels: int, memory: int) -> None:
    """The whole life of a decoder. It never returns."""
    try:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 2
        )  # libraries warn of what is odd in a file: no stranger fills the log
        _confine(memory)
        while True:
            which, length = REQUEST.unpack(receive(channel, REQUEST.size))
            channel.sendall(answer(bytes(receive(channel, length)), preprocess[which], pixels))
    except (EOFError, OSError):
        os._exit(0)
    finally:
        os._exit(1)


def _confine(memory: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:  # what the imports have mapped is no fault of the image
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(kind, (0, 0))


def answer(encoded: bytes, preprocess: Preprocess, pixels: int) -> bytes:
    """The same path as `Preprocess.array`, with the size of the original beside it."""
    try:
        header = read_header(encoded, "the image", max_pixels=2**62)
        if header.width * header.height > pixels:
            return _reply(LARGE, f"the image has {header.width}×{header.height} pixels, more than {pixels:,}".encode())
        image = decode(encoded, channels=preprocess.channels, name="the image", max_pixels=pixels)
        return _reply(GOOD, preprocess.resize_and_crop(image).tobytes(), image.height, image.width)
    except CorruptImageError as error:
        return _reply(MEMORY if isinstance(error.__cause__, MemoryError) else BAD, str(error).encode()[:500])
    except MemoryError:
        return _reply(MEMORY, b"")


def _reply(status: bytes, content: bytes, height: int = 0, width: int = 0) -> bytes:
    return REPLY.pack(status, height, width, len(content)) + content


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when it ends
    Image.init()  # all of Pillow's plugins, before any fork
    Image.MAX_IMAGE_PIXELS = None  # the limit is checked here, by the header
    settings = json.loads(sys.argv[2])
    tend(
        socket.socket(fileno=int(sys.argv[1])),
        [Preprocess.from_dict(values) for values in settings["preprocess"]],
        settings["pixels"],
        settings["memory"],
    )
    os._exit(0)  # at once: there is nothing to tidy up
