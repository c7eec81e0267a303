"""Measure the cost of the server: images per second and latency with 1, 8 and 64 clients, compared with the bare model.

    python benchmarks/serve.py MODEL [--clients 1 8 64] [--seconds 10] > benchmarks/results/serve.txt

Clients are plain sockets of one other process, each with one open request. Images are JPEGs of 256 × 256. The bare
model runs the same engine on full batches before and after each load, so that other work on the machine slows both.
The last row sends more than the queue takes: the excess is refused with 429, and memory does not grow. Loopback only.
"""

import argparse
import asyncio
import contextlib
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import psutil
from heading import heading
from PIL import Image

from vitkit.export.sample_photographs import sample_crops
from vitkit.inference import Predictor

MOST_REQUESTS = 50_000


def bodies(count: int = 16) -> list[bytes]:
    files = []
    for pixels in sample_crops(count):
        file = io.BytesIO()
        Image.fromarray(pixels).resize((256, 256)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


async def client(port: int, files: list[bytes], until: float, number: int) -> list[tuple[int, float]]:
    """Requests one after the other on one connection: (status, seconds) of each."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    seen = []
    while time.perf_counter() < until and len(seen) < MOST_REQUESTS:
        body = files[(number + len(seen)) % len(files)]
        head = f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        started = time.perf_counter()
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer)
        await reader.readexactly(int(length[1]) if length else 0)
        seen.append((int(answer[9:12]), time.perf_counter() - started))
        if seen[-1][0] != 200:
            await asyncio.sleep(0.1)  # a refused client waits before it retries
    writer.close()
    return seen


async def load(port: int, clients: int, seconds: float) -> tuple[list[tuple[int, float]], float]:
    """All requests, and the seconds until the last was answered."""
    files, started = bodies(), time.perf_counter()
    parts = await asyncio.gather(*(client(port, files, started + seconds, i) for i in range(clients)))
    return [entry for part in parts for entry in part], time.perf_counter() - started


def bare(predictor: Predictor, batch: int, seconds: float) -> float:
    """Return the images per second of the engine alone."""
    pixels = np.stack([predictor.preprocess.array(file) for file in bodies()])
    pixels = np.resize(pixels, (batch, *pixels.shape[1:]))
    predictor.predict_probabilities(pixels)
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        predictor.predict_probabilities(pixels)
        done += batch
    return done / (time.perf_counter() - started)


@contextlib.contextmanager
def serving(model: str, *arguments: str) -> Iterator[tuple[int, psutil.Process]]:
    command = [sys.executable, "-m", "vitkit", "serve", model, "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = (re.search(r"http://127\.0\.0\.1:(\d+)/", line) for line in process.stdout)
        port = next(int(match[1]) for match in found if match)
        yield port, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def measure(port: int, clients: int, seconds: float) -> tuple[list[tuple[int, float]], float]:
    command = [sys.executable, __file__, "-", "--load", str(port), "--clients", str(clients), "--seconds", str(seconds)]
    seen, took = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return seen, took


def row(name: str, seen: list[tuple[int, float]], seconds: float, pace: float) -> str:
    good = sorted(took for status, took in seen if status == 200)
    refused = sum(status == 429 for status, _ in seen)
    other = len(seen) - len(good) - refused
    times = good or [float("nan")]
    shares = [1000 * times[min(len(times) - 1, int(part * len(times)))] for part in (0.5, 0.95, 0.99)]
    speed = len(good) / seconds
    shown = " ".join(f"{ms:8.1f}" for ms in shares)
    return f"{name:>22} {speed:9.1f} {pace:9.1f} {speed / pace:6.0%}  {shown}  {refused:6} {other:5}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--load", type=int, help=argparse.SUPPRESS)  # the port, if this process is the clients
    asked = parser.parse_args()
    if asked.load:
        print(json.dumps(asyncio.run(load(asked.load, asked.clients[0], asked.seconds))))
        return
    predictor, seconds = Predictor(asked.model), asked.seconds
    print(heading("starlette", "uvicorn"))
    columns = (
        f"{'images/s':>9} {'bare':>9} {'share':>6}  {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8}  {'429':>6} {'other':>5}"
    )
    print(f"{'clients':>22} {columns}")
    with serving(asked.model, "--batch", str(asked.batch)) as (port, process):
        measure(port, 2, 1.0)
        before = bare(predictor, asked.batch, seconds / 2)
        for clients in asked.clients:
            seen, took = measure(port, clients, seconds)
            after = bare(predictor, asked.batch, seconds / 2)
            print(row(str(clients), seen, took, (before + after) / 2), flush=True)
            before = after
    with serving(asked.model, "--batch", str(asked.batch), "--queue", "32") as (port, process):
        measure(port, 64, 2.0)  # memory for full batches is now allocated
        memory = [process.memory_info().rss]
        for _ in range(2):
            seen, took = measure(port, 128, seconds)
            memory.append(process.memory_info().rss)
        print(row("128, queue of 32", seen, took, before))
        shown = ", ".join(f"{value / 2**20:.0f}" for value in memory)
        print(f"\nmemory of the server in MiB, before, after one and after two rounds of that overload: {shown}")


if __name__ == "__main__":
    main()
