"""Send mutated images and requests to a server, and check the server and its other clients.

    python -m tests.faults.serve_fuzz --count 20000 [--model FOLDER]

Phases with and without an attack alternate. A good client sends requests in both, and its latencies are compared.
Prints the responses by status, the memory of the server's processes and the number of replaced decoders. Exits with 1
after a 5xx, a crash of the server, or a growth in memory of more than `MAX_GROWTH`.
"""

import argparse
import collections
import datetime
import http.client
import json
import os
import platform
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.serve.client import Server, noise_png, running, save_model_dir

from .mutations import images, mutated, random_query, raw_request

MAX_GROWTH = 400 * 2**20  # bytes: two decoders with the largest images that the mutations make


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
    alive: bool = False

    @property
    def server_errors(self) -> int:
        return sum(count for status, count in self.answers.items() if status.startswith("5"))

    @property
    def ratio(self) -> float:
        return quantile(self.under_attack, 0.99) / quantile(self.quiet, 0.99)

    @property
    def fine(self) -> bool:
        grown = self.memory_after - self.memory_before
        bad = self.server_errors or self.answers["timeout"] or self.wrong
        return self.alive and not bad and grown < MAX_GROWTH


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


def campaign(count: int, folder: Path, seed: int = 0, attackers: int = 1, verbose: bool = True) -> Outcome:
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


def _attacker(server: Server, count: int, seed: int) -> subprocess.Popen:
    words = [sys.executable, "-m", "tests.faults.serve_fuzz", "--attack", f"{server.host}:{server.port}"]
    return subprocess.Popen(
        [*words, "--count", str(count), "--seed", str(seed)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attackers", type=int, default=1)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--attack", help=argparse.SUPPRESS)  # used by the campaign itself
    asked = parser.parse_args()
    if asked.attack:
        os.nice(5)  # the attacker should not take the server's processor time
        host, port = asked.attack.split(":")
        print(json.dumps(attack(host, int(port), asked.count, asked.seed)))
        return 0
    with tempfile.TemporaryDirectory() as place:
        folder = asked.model or save_model_dir(Path(place) / "small", seed=0)
        outcome = campaign(asked.count, folder, asked.seed, asked.attackers)
    command = f"python -m tests.faults.serve_fuzz --count {asked.count} --attackers {asked.attackers}"
    print(f"{datetime.date.today()} · {platform.machine()}, {os.cpu_count()} cores · {command}\n")
    print(f"{sum(outcome.answers.values()):,} hostile requests; answers: {dict(sorted(outcome.answers.items()))}")
    print(f"5xx: {outcome.server_errors}; good requests answered wrongly: {outcome.wrong}; alive: {outcome.alive}")
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
