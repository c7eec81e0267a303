"""Fork server for image decoders: `python -m vitkit.serve.decoder_worker FD SETTINGS`.

It imports Pillow and the preprocessing once and never parses an image, so a new decoder costs one fork. Decoders run
in a sandbox (see `sandbox`) and exchange raw bytes with the server: nothing they send is unpickled.

Control messages from the server, 5 bytes: "+" with a file descriptor starts a decoder on it, "-" with a process id
kills one. The reply to "+" is "+" with the process id, or "-" with an error number. Request to a decoder: index of
the preprocessing, length, file. Reply: status, height and width of the original, length, then the pixels or an error
message.
"""

import errno
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Sequence

from PIL import Image

from vitkit.data.decode import read_header
from vitkit.data.preprocess import Preprocess
from vitkit.errors import CorruptImageError
from vitkit.serve.sandbox import enter_sandbox

CONTROL = struct.Struct("!cI")
REQUEST = struct.Struct("!HI")
REPLY = struct.Struct("!cIII")
OK, CORRUPT, TOO_LARGE, OUT_OF_MEMORY = b"g", b"b", b"l", b"m"


def receive(channel: socket.socket, count: int) -> bytearray:
    """Return exactly `count` bytes, or raise EOFError."""
    data = bytearray(count)
    view, got = memoryview(data), 0
    while got < count:
        read = channel.recv_into(view[got:])
        if not read:
            raise EOFError
        got += read
    return data


def run_fork_server(control: socket.socket, preprocess: Sequence[Preprocess], pixels: int, memory: int) -> None:
    """Start and kill decoders on request until the server closes `control`, then kill all of them."""
    children: set[int] = set()
    try:
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, CONTROL.size, 1)
            if len(message) < CONTROL.size:
                return
            order, number = CONTROL.unpack(message)
            if order == b"+":
                try:
                    pid = _fork_decoder(control, descriptors, preprocess, pixels, memory)
                except OSError as error:  # no memory or no process left: the other decoders go on
                    control.sendall(CONTROL.pack(b"-", error.errno or errno.EIO))
                else:
                    children.add(pid)
                    control.sendall(CONTROL.pack(b"+", pid))
            elif number in children:  # not yet reaped, so the process id cannot have been reused
                _kill(number)
                children.remove(number)
    finally:
        for pid in children:
            _kill(pid)


def _fork_decoder(
    control: socket.socket, descriptors: Sequence[int], preprocess: Sequence[Preprocess], pixels: int, memory: int
) -> int:
    if not descriptors:  # the kernel drops what does not fit into the table of open files
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    try:
        pid = os.fork()
        if not pid:
            control.close()
            _run_decoder(socket.socket(fileno=descriptors[0]), preprocess, pixels, memory)
        return pid
    finally:
        os.close(descriptors[0])


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _run_decoder(channel: socket.socket, preprocess: Sequence[Preprocess], pixels: int, memory: int) -> None:
    """Answer requests until the channel closes. Never returns."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # warnings about untrusted files must not fill the log
        enter_sandbox(memory)
        while True:
            index, length = REQUEST.unpack(receive(channel, REQUEST.size))
            channel.sendall(decode_request(bytes(receive(channel, length)), preprocess[index], pixels))
    except (EOFError, OSError):
        os._exit(0)
    finally:
        os._exit(1)


def decode_request(encoded: bytes, preprocess: Preprocess, max_pixels: int) -> bytes:
    """Return the reply to one file. The pixels are those of `Preprocess.array`."""
    try:
        header = read_header(encoded, "the image", max_pixels=2**62)
        if header.width * header.height > max_pixels:
            size = f"{header.width}×{header.height}"
            return _reply(TOO_LARGE, f"the image has {size} pixels, more than {max_pixels:,}".encode())
        image = preprocess.decode(encoded, "the image", max_pixels)
        return _reply(OK, preprocess.resize_and_crop(image).tobytes(), image.height, image.width)
    except CorruptImageError as error:
        status = OUT_OF_MEMORY if isinstance(error.__cause__, MemoryError) else CORRUPT
        return _reply(status, str(error).encode()[:500])
    except MemoryError:
        return _reply(OUT_OF_MEMORY, b"")


def _reply(status: bytes, content: bytes, height: int = 0, width: int = 0) -> bytes:
    return REPLY.pack(status, height, width, len(content)) + content


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the process group; the server decides when to stop
    Image.init()  # load all plugins of Pillow before the first fork
    Image.MAX_IMAGE_PIXELS = None  # `decode_request` checks the header instead
    settings = json.loads(sys.argv[2])
    run_fork_server(
        socket.socket(fileno=int(sys.argv[1])),
        [Preprocess.from_dict(values) for values in settings["preprocess"]],
        settings["pixels"],
        settings["memory"],
    )
    os._exit(0)  # skip clean-up: nothing needs it
