"""Starts a server process on a loopback port and sends plain requests to it."""

import contextlib
import http.client
import io
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

TOKEN = "a-token-that-nobody-guesses"
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def code(self) -> str:
        return self.json()["error"]["code"]


@dataclass(frozen=True)
class Server:
    host: str
    port: int
    process: subprocess.Popen

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}/"

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Response:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            received = {name.lower(): value for name, value in response.getheaders()}
            return Response(response.status, received, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Response:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: bytes, **headers: str) -> Response:
        return self.request("POST", path, body, **headers)

    def form(self, path: str, files: Mapping[str, bytes], **headers: str) -> Response:
        body = b"".join(
            f'--b0\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n\r\n'.encode() + file + b"\r\n"
            for name, file in files.items()
        )
        return self.post(path, body + b"--b0--\r\n", Content_Type="multipart/form-data; boundary=b0", **headers)

    def socket(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=60)


@contextlib.contextmanager
def running(
    *words: str, environment: Mapping[str, str] | None = None, descriptors: int | None = None
) -> Iterator[Server]:
    """Run a server, if given with a hard limit of file descriptors."""
    limit = [] if descriptors is None else ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"]
    process = subprocess.Popen(
        [*limit, sys.executable, "-m", "vitkit", "serve", *words, "--port", "0"],
        stdout=subprocess.PIPE, text=True, env=dict(environment) if environment else None,
    )  # fmt: skip
    try:
        yield Server(*_address(process), process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen) -> tuple[str, int]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://([\d.]+):(\d+)/", line):
            return found[1], int(found[2])
    raise RuntimeError(f"the server exited with {process.wait()} before it listened")


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Leave this process without a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with open(os.devnull, "rb") as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno(), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def wait_until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        time.sleep(0.02)


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def noise_png(height: int = 20, width: int = 30, seed: int = 0) -> bytes:
    return encoded(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def save_model_dir(folder: Path, seed: int, **changes: Any) -> Path:
    """Save a small model whose random weights are scaled up, so that scores differ between images."""
    from vitkit.data.preprocess import Preprocess
    from vitkit.model import ModelInfo, create_model
    from vitkit.weights.model_dir import save_model

    small = dict(width=16, depth=3, heads=2, head_width=8, mlp_width=32, image_size=32, patch_size=8, num_classes=3)
    model = create_model({**small, **changes}, seed=seed)
    model.head.weight.data.mul_(40)  # a wrong image then changes the scores
    for block in model.blocks:
        block.attn.qkv.weight.data.mul_(20)  # a wrong row then changes the attention
    info = ModelInfo(class_names=("cat", "dog", "emu"), preprocess=Preprocess(size=model.config.image_size))
    return save_model(model, folder, info)


def post_header(path: str, length: int) -> bytes:
    """Return the header of a POST request with the token, for tests that write to a socket."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}", f"Content-Length: {length}"]
    return "\r\n".join([*lines, "", ""]).encode()
