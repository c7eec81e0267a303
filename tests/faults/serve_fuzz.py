"""Send mutated images and requests to a server, and check the server and its other clients.

    python -m tests.faults.serve_fuzz --count 20000 --drips 2000 --kills 50 [--model FOLDER]

Three attacks, one after another, on one server that also has a good client:

requests  Mutated images and requests. Phases with and without them alternate, to compare the good client's latencies.
drips     Connections that send one byte per second (of a header, of a body, of a body whose request has been answered)
          or do not read their response, all at the same time.
kills     The server's limit of descriptors is lowered to what it has open, then all its decoders are killed.

Prints the responses by status, the memory of the server's processes, the number of replaced decoders, and how long the
server takes to recover. Exits with 1 after a 5xx (other than 503 during drips and kills), a crash of the server, a
connection held for more than `MAX_HELD_S`, a recovery of more than `MAX_RECOVERY_S`, or a growth in memory of more
than `MAX_GROWTH`.
"""

import argparse
import asyncio
import collections
import contextlib
import datetime
import http.client
import json
import os
import platform
import random
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import PIL
import psutil
import torch
import uvicorn

from tests.serve.client import Server, noise_png, running, save_model_dir

from .mutations import images, mutated, random_query, raw_request

MAX_GROWTH = 400 * 2**20  # bytes: two decoders with the largest images that the mutations make
MAX_HELD_S = 60.0  # a body may take 30 s to arrive, and a busy machine is late
MAX_RECOVERY_S = 10.0
_DRIP_S = 150.0  # the longest observation of a dripping connection


def attack(host: str, port: int, count: int, seed: int) -> collections.Counter[str]:
    """Send mutated images with random queries, and requests that may not be valid HTTP. Count responses by status."""
    rng, files = random.Random(seed), images()
    seen: collections.Counter[str] = collections.Counter()
    for _ in range(count):
        if rng.random() < 0.6:
            seen[_send_image(host, port, rng, files)] += 1
        else:
            seen[_send_raw(host, port, raw_request(rng, files))] += 1
    return seen


def _send_image(host: str, port: int, rng: random.Random, files: list[bytes]) -> str:
    path = rng.choice(["/v1/predict"] * 4 + ["/v1/attention", "/v1/explain?method=rollout"])
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request("POST", random_query(path, rng), mutated(rng.choice(files), rng))
        response = connection.getresponse()
        response.read()
        return str(response.status)
    except TimeoutError:
        return "timeout"
    except (http.client.HTTPException, OSError):
        return "closed"
    finally:
        connection.close()


def _send_raw(host: str, port: int, request: bytes) -> str:
    with socket.create_connection((host, port), timeout=60) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        except TimeoutError:
            return "timeout"
        except OSError:  # the server closed the connection
            return "closed"
    found = re.match(rb"(?:HTTP/1\.1 100 .*\r\n(?:.+\r\n)*\r\n)?HTTP/1\.[01] (\d{3})", answer)
    return found[1].decode() if found else "closed"


@dataclass
class Outcome:
    answers: collections.Counter[str] = field(default_factory=collections.Counter)
    quiet: list[float] = field(default_factory=list)  # latencies of good requests
    under_attack: list[float] = field(default_factory=list)
    memory_before: int = 0
    memory_most: int = 0
    memory_after: int = 0
    replaced: int = 0
    wrong: int = 0  # good requests with another response than before
    drips: collections.Counter[str] = field(default_factory=collections.Counter)  # first responses
    held: list[float] = field(default_factory=list)  # seconds until the server closed a dripping connection
    during_drips: collections.Counter[str] = field(default_factory=collections.Counter)  # responses to the good client
    during_kills: collections.Counter[str] = field(default_factory=collections.Counter)
    recoveries: list[float] = field(default_factory=list)  # seconds until a good request succeeded
    alive: bool = False

    @property
    def server_errors(self) -> int:
        overloaded = self.drips + self.during_drips + self.during_kills
        return sum(count for status, count in self.answers.items() if status.startswith("5")) + sum(
            count for status, count in overloaded.items() if status.startswith("5") and status != "503"
        )

    @property
    def ratio(self) -> float:
        return quantile(self.under_attack, 0.99) / quantile(self.quiet, 0.99)

    @property
    def fine(self) -> bool:
        grown = self.memory_after - self.memory_before
        bad = self.server_errors or self.answers["timeout"] or self.wrong
        slow = max([0.0, *self.held]) > MAX_HELD_S or max([0.0, *self.recoveries]) > MAX_RECOVERY_S
        return self.alive and not bad and not slow and grown < MAX_GROWTH


def quantile(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


def memory(server: Server) -> int:
    top = psutil.Process(server.process.pid)
    total = 0
    for process in [top, *top.children(recursive=True)]:
        try:
            total += process.memory_full_info().uss
        except psutil.NoSuchProcess:
            continue
    return total


async def drip(host: str, port: int, kind: int) -> tuple[str, float]:
    """Open a connection that sends a byte per second. Return the first status, and how long it was held."""
    started = time.monotonic()
    status = "closed"
    try:
        reader, writer = await asyncio.open_connection(host, port)
        head = f"POST {('/healthz', '/v1/predict', '/v1/predict', '/')[kind]} HTTP/1.1\r\nHost: localhost\r\n"
        if kind == 3:  # responses that nobody reads
            writer.write(b"GET /page/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
        elif kind == 2:
            writer.write(head.encode())  # an endless header
        else:
            writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode() + b"\x89PNG\r\n\x1a\n" * kind)
        while time.monotonic() < started + _DRIP_S:
            await asyncio.sleep(1)
            writer.write(b"x")
            if kind != 3:
                with contextlib.suppress(TimeoutError):
                    line = await asyncio.wait_for(reader.read(4096), 0.01)
                    if found := re.match(rb"HTTP/1.1 (\d{3})", line):
                        status = found[1].decode()
                    if not line:
                        break
            if writer.transport.is_closing():
                break
            await writer.drain() if kind != 3 else None
        writer.transport.abort()
    except OSError:  # reset by the server
        pass
    return status, time.monotonic() - started


async def drip_all(host: str, port: int, count: int) -> list[tuple[str, float]]:
    return await asyncio.gather(*(drip(host, port, i % 4) for i in range(count)))


def _attack_with_drips(server: Server, count: int, good: bytes, outcome: Outcome) -> None:
    attacker = _attacker(server, count, 0, "--drip")
    while attacker.poll() is None:
        outcome.during_drips[_status(server, good)] += 1
        outcome.memory_most = max(outcome.memory_most, memory(server))
        time.sleep(0.2)
    for status, seconds in json.loads(attacker.communicate()[0]):
        outcome.drips[status] += 1
        outcome.held.append(seconds)
    outcome.recoveries.append(_recovery(server, good))


def _attack_with_kills(server: Server, rounds: int, good: bytes, outcome: Outcome) -> None:
    """Kill all decoders while the server has no descriptor left, then return the descriptors."""
    pid = server.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    (fork_server,) = psutil.Process(pid).children()
    for _ in range(rounds):
        connections = [http.client.HTTPConnection(server.host, server.port, timeout=60) for _ in range(4)]
        for connection in connections:
            connection.connect()  # new connections cannot be accepted below
        time.sleep(0.2)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))  # what is open stays open, and nothing is opened
        for child in fork_server.children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        for connection in connections:
            try:
                connection.request("POST", "/v1/predict", good)
                outcome.during_kills[str(connection.getresponse().status)] += 1
            except (http.client.HTTPException, OSError):
                outcome.during_kills["closed"] += 1
            connection.close()
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        outcome.recoveries.append(_recovery(server, good))
        if not fork_server.is_running():
            (fork_server,) = psutil.Process(pid).children()


def _status(server: Server, good: bytes) -> str:
    try:
        return str(server.post("/v1/predict", good).status)
    except (http.client.HTTPException, OSError):
        return "closed"


def _recovery(server: Server, good: bytes) -> float:
    started = time.monotonic()
    while _status(server, good) != "200" or server.get("/readyz").status != 200:
        if time.monotonic() > started + 120:
            return float("inf")
        time.sleep(0.05)
    return time.monotonic() - started


def campaign(
    count: int,
    folder: Path,
    seed: int = 0,
    attackers: int = 1,
    verbose: bool = True,
    drips: int = 0,
    kills: int = 0,
) -> Outcome:
    outcome = Outcome()
    with running(str(folder), "--samples", str(_sample(folder))) as server:
        good = noise_png(200, 300, seed=1)
        expected = server.post("/v1/predict", good).content

        def watch(times: list[float]) -> None:
            started = time.perf_counter()
            answer = server.post("/v1/predict", good)
            times.append(time.perf_counter() - started)
            outcome.wrong += not _same(answer.content, expected)
            time.sleep(0.005)

        for _ in range(20):
            watch([])
        outcome.memory_before = memory(server)
        block = max(150, count // 20)
        for start in range(0, count, block):
            for _ in range(50):
                watch(outcome.quiet)
            part = [min(block, count - start) // attackers] * attackers
            processes = [_attacker(server, n, seed + start + i) for i, n in enumerate(part)]
            while any(process.poll() is None for process in processes):
                watch(outcome.under_attack)
                if len(outcome.under_attack) % 20 == 0:
                    outcome.memory_most = max(outcome.memory_most, memory(server))
            for process in processes:
                outcome.answers.update(json.loads(process.communicate()[0]))
            if verbose:
                print(f"{start + block:6} {dict(sorted(outcome.answers.items()))}", file=sys.stderr, flush=True)
        if drips:
            _attack_with_drips(server, drips, good, outcome)
        if kills:
            _attack_with_kills(server, kills, good, outcome)
        watch([])
        outcome.memory_after = memory(server)
        outcome.memory_most = max(outcome.memory_most, outcome.memory_after)
        metrics = server.get("/metrics").content.decode()
        (replaced,) = re.findall(r"^vitkit_decoders_replaced_total (\S+)$", metrics, flags=re.MULTILINE)
        outcome.replaced = int(float(replaced))
        outcome.alive = server.get("/readyz").status == 200 and server.process.poll() is None
    return outcome


def _same(found: bytes, expected: bytes) -> bool:
    """Compare up to rounding: other batch sizes sum in another order."""
    one, other = (json.loads(text)["results"][0]["predictions"] for text in (found, expected))
    return all(
        a["label"] == b["label"] and abs(a["score"] - b["score"]) < 1e-4 for a, b in zip(one, other, strict=True)
    )


def _sample(folder: Path) -> Path:
    place = folder.parent / "samples"
    place.mkdir(exist_ok=True)
    (place / "one.png").write_bytes(noise_png())
    return place


def _attacker(server: Server, count: int, seed: int, how: str = "--attack") -> subprocess.Popen:
    words = [sys.executable, "-m", "tests.faults.serve_fuzz", how, f"{server.host}:{server.port}"]
    return subprocess.Popen(
        [*words, "--count", str(count), "--seed", str(seed)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attackers", type=int, default=1)
    parser.add_argument("--drips", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--attack", help=argparse.SUPPRESS)  # used by the campaign itself
    parser.add_argument("--drip", help=argparse.SUPPRESS)  # likewise
    asked = parser.parse_args()
    if asked.attack or asked.drip:
        os.nice(5)  # the attacker should not take the server's processor time
        host, port = (asked.attack or asked.drip).split(":")
        if asked.drip:
            print(json.dumps(asyncio.run(drip_all(host, int(port), asked.count))))
        else:
            print(json.dumps(attack(host, int(port), asked.count, asked.seed)))
        return 0
    with tempfile.TemporaryDirectory() as place:
        folder = asked.model or save_model_dir(Path(place) / "small", seed=0)
        outcome = campaign(asked.count, folder, asked.seed, asked.attackers, drips=asked.drips, kills=asked.kills)
    numbers = f"--count {asked.count} --drips {asked.drips} --kills {asked.kills} --attackers {asked.attackers}"
    versions = f"torch {torch.__version__}, Pillow {PIL.__version__}, uvicorn {uvicorn.__version__}"
    print(f"{datetime.date.today()} · {platform.machine()}, {os.cpu_count()} cores · {versions}")
    print(f"python -m tests.faults.serve_fuzz {numbers}\n")
    print(f"{sum(outcome.answers.values()):,} hostile requests; answers: {dict(sorted(outcome.answers.items()))}")
    print(
        f"{len(outcome.held):,} dripping connections; answers: {dict(sorted(outcome.drips.items()))}; held for up to "
        f"{max([0.0, *outcome.held]):.1f} s; good requests meanwhile: {dict(sorted(outcome.during_drips.items()))}"
    )
    print(
        f"{asked.kills} times all decoders killed without descriptors; good requests meanwhile: "
        f"{dict(sorted(outcome.during_kills.items()))}"
    )
    shown = [f"{quantile(outcome.recoveries, part):.2f}" for part in (0.5, 1.0)] if outcome.recoveries else ["–"] * 2
    print(f"recovery: median {shown[0]} s, longest {shown[1]} s")
    print(f"5xx other than 503 while overloaded: {outcome.server_errors}; alive: {outcome.alive}")
    print(f"good requests answered wrongly: {outcome.wrong}")
    print(f"decoders replaced: {outcome.replaced}")
    mib = [f"{value / 2**20:,.0f}" for value in (outcome.memory_before, outcome.memory_most, outcome.memory_after)]
    print(f"memory of the server and its decoders: {mib[0]} MiB before, {mib[1]} at most, {mib[2]} after")
    for name, times in (("quiet", outcome.quiet), ("under attack", outcome.under_attack)):
        shown = " ".join(f"p{part * 100:g} {1000 * quantile(times, part):.1f} ms" for part in (0.5, 0.95, 0.99))
        print(f"good requests, {name}: {len(times)}, {shown}")
    print(f"p99 under attack / quiet: {outcome.ratio:.2f}")
    return not outcome.fine


if __name__ == "__main__":
    sys.exit(main())
