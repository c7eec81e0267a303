"""A server of its own process on a loopback port, and plain requests to it."""

import contextlib
import http.client
import io
import json
import re
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


@dataclass(frozen=True)
class Answer:
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

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=120)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, body: bytes, **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def form(self, path: str, files: Mapping[str, bytes], **headers: str) -> Answer:
        body = b"".join(
            f'--b0\r\nContent-Disposition: form-data; name="image"; filename="{name}"\r\n\r\n'.encode() + file + b"\r\n"
            for name, file in files.items()
        )
        return self.post(path, body + b"--b0--\r\n", Content_Type="multipart/form-data; boundary=b0", **headers)

    def socket(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=60)


@contextlib.contextmanager
def running(*words: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, "-m", "vitkit", "serve", *words, "--port", "0"],
        stdout=subprocess.PIPE, text=True, env=dict(environment) if environment else None,
    )  # fmt: skip
    try:
        yield Server(*_where(process), process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _where(process: subprocess.Popen) -> tuple[str, int]:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"http://([\d.]+):(\d+)/", line):
            return found[1], int(found[2])
    raise RuntimeError(f"the server ended with {process.wait()} before it listened")


def until(true: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.02)


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def picture(height: int = 20, width: int = 30, seed: int = 0) -> bytes:
    return encoded(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def save(folder: Path, seed: int, **changes: Any) -> Path:
    """A small model with random weights, large enough for answers that differ."""
    from vitkit.data.preprocess import Preprocess
    from vitkit.model import ModelInfo, create_model
    from vitkit.weights.model_dir import save_model

    small = dict(width=16, depth=3, heads=2, head_width=8, mlp_width=32, image_size=32, patch_size=8, num_classes=3)
    model = create_model({**small, **changes}, seed=seed)
    model.head.weight.data.mul_(40)  # apart, so that a wrong picture shows in the scores,
    for block in model.blocks:
        block.attn.qkv.weight.data.mul_(20)  # and a wrong row in the attention
    info = ModelInfo(class_names=("cat", "dog", "emu"), preprocess=Preprocess(size=model.config.image_size))
    return save_model(model, folder, info)
