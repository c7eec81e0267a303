"""Kill processes of a distributed run at random times and compare its result with that of an uninterrupted run.

    python -m tests.faults.kill_ranks --runs 50

Each run has one failure, at a random time, and finishes nevertheless:

    one rank     SIGKILL of one process; torchrun restarts all of them, and they resume
    all ranks    SIGKILL of all processes; likewise
    launcher     SIGKILL of torchrun: its processes save and exit; another number of processes resumes
    everything   SIGKILL of torchrun and all processes; another number of processes resumes
    save         the same while shards of a checkpoint are being written

Every step is saved. Prints a line per run. Exits with 1 if the samples of any step differ from those of the
uninterrupted run, or the losses by more than rounding.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.training.recorded import samples_by_step

SETTINGS = {
    "config.depth": "2",
    "batch": "48",
    "budget.epochs": "1",
    "budget.validate_every": "0.25",
    "keep.every_minutes": "0",
    "optimizer.ema": "0.9",
    "machine.precision": "fp32",
    "machine.compile": "off",
}
TOLERANCE = 1e-4  # of the validation loss: sums over another number of processes round differently
WAYS = ("one rank", "all ranks", "launcher", "everything", "save")
RESTARTED = ("one rank", "all ranks")  # by torchrun


@dataclass(frozen=True)
class Outcome:
    way: str
    story: str
    passed: bool


def command(out: Path, processes: int, shard: str, *more: str) -> list[str]:
    words = ["-m", "tests.training.recorded", f"{out}-samples", "train", "digits", "--out", str(out), "--json", *more]
    for key, value in {**SETTINGS, "parallel.shard": shard}.items():
        words += ["--set", f"{key}={value}"]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--max-restarts", "3", "--nproc-per-node"]
    return [sys.executable, *(launcher if processes > 1 else []), *([str(processes)] if processes > 1 else []), *words]


def start(out: Path, processes: int, shard: str, *more: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(f"{out}.log", "ab") as log:
        return subprocess.Popen(
            command(out, processes, shard, *more), stdout=log, stderr=log, env=environment, start_new_session=True
        )


def saved(out: Path) -> int:
    return max((int(p.stem.removeprefix("step-")) for p in (out / "checkpoints").glob("step-*.json")), default=-1)


def ranks(launcher: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(launcher.pid).children()


def inject(launcher: subprocess.Popen[bytes], out: Path, way: str, rng: random.Random) -> str:
    """Wait for a random step and a random time, and kill. Return a description, or nothing if the run had ended."""
    wanted = rng.randrange(1, 20)
    while launcher.poll() is None and saved(out) < wanted:
        time.sleep(0.005)
    if way == "save":
        while launcher.poll() is None and not _writing(out):
            time.sleep(0.0005)
    else:
        time.sleep(rng.uniform(0.0, 0.3))
    if launcher.poll() is not None:
        return ""
    processes = ranks(launcher)
    if way == "launcher":
        launcher.kill()
        launcher.wait()
        for process in processes:  # they save and exit
            process.wait(timeout=120)
    elif way == "one rank":
        rng.choice(processes).kill()
    elif way == "all ranks":
        for process in processes:
            process.kill()
    else:
        for process in (psutil.Process(launcher.pid), *processes):
            process.kill()
        launcher.wait()
    return f"{way} of {len(processes)} at step {saved(out)}"


def _writing(out: Path) -> bool:
    """Is a checkpoint being written?"""
    return any((out / "checkpoints").glob(".step-*"))


def one_run(out: Path, way: str, rng: random.Random) -> tuple[str, int]:
    """Kill once and let the run finish. Return a description, and the exit code of the last part."""
    shard, processes = rng.choice(["none", "full"]), 2
    process = start(out, processes, shard)
    story = inject(process, out, way, rng) or "ended before the kill"
    if way in RESTARTED or story.startswith("ended"):
        return f"{shard:4}  {story}", process.wait()
    after = rng.choice([1, 2, 3])
    return f"{shard:4}  {story}, then {after}", start(out, after, shard, "--resume").wait()


def check(out: Path, reference: Path, code: int) -> str:
    """Return what is wrong, or nothing."""
    if code:
        return f"exit code {code}: see {out}.log"
    if samples_by_step(Path(f"{out}-samples")) != samples_by_step(Path(f"{reference}-samples")):
        return "other samples"
    found, expected = (
        json.loads((p / "result.json").read_text(encoding="utf-8"))["val"]["nll"] for p in (out, reference)
    )
    return "" if math.isclose(found, expected, rel_tol=TOLERANCE) else f"loss {found}, expected {expected}"


def campaign(runs: int, folder: Path, seed: int = 0, ways: tuple[str, ...] = WAYS) -> Iterator[Outcome]:
    rng, reference = random.Random(seed), folder / "reference"
    if start(reference, 1, "none").wait():
        raise RuntimeError(f"the uninterrupted run failed:\n{Path(f'{reference}.log').read_text(encoding='utf-8')}")
    for number in range(runs):
        out, way = folder / f"killed-{number}", ways[number % len(ways)]
        story, code = one_run(out, way, rng)
        wrong = check(out, reference, code)
        yield Outcome(way, f"{story}: {wrong or 'equal'}", not wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        outcomes = []
        for outcome in campaign(options.runs, Path(place), options.seed, tuple(options.ways)):
            outcomes.append(outcome)
            print(f"run {len(outcomes):3}  {outcome.story}", flush=True)
            if not outcome.passed:
                print(
                    Path(place, f"killed-{len(outcomes) - 1}.log").read_text(encoding="utf-8")[-4000:], file=sys.stderr
                )
    bad = sum(not outcome.passed for outcome in outcomes)
    print(f"{len(outcomes)} runs, {bad} failed")
    sys.exit(bad > 0)
