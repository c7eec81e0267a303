"""Kill processes of a distributed run at random instants and compare what comes out with a run left in peace.

    python -m tests.faults.kill_ranks --runs 50

Each run is hurt in one way, at a random instant, and comes to its end all the same:

    one rank     SIGKILL of one process; torchrun starts all of them again, which go on by themselves
    all ranks    SIGKILL of all processes; likewise
    launcher     SIGKILL of torchrun: the deserted processes save and leave; another number of processes goes on
    everything   SIGKILL of torchrun and all processes; another number of processes goes on
    save         the same at the instant at which parts of a state are being written

Every step is saved. Prints a line per run; exits with 1 where the samples of any step differ from those of the run in
peace, or the losses by more than rounding.
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
TOLERANCE = 1e-4  # of the validation loss: sums over other numbers of processes are rounded otherwise
WAYS = ("one rank", "all ranks", "launcher", "everything", "save")
RESTARTED = ("one rank", "all ranks")  # by torchrun itself


@dataclass(frozen=True)
class Outcome:
    way: str
    story: str
    good: bool


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


def hurt(launcher: subprocess.Popen[bytes], out: Path, way: str, chance: random.Random) -> str:
    """Wait for a random step and a random while, and kill. Says what was done; nothing where it came too late."""
    wanted = chance.randrange(1, 20)
    while launcher.poll() is None and saved(out) < wanted:
        time.sleep(0.005)
    if way == "save":
        while launcher.poll() is None and not _writing(out):
            time.sleep(0.0005)
    else:
        time.sleep(chance.uniform(0.0, 0.3))
    if launcher.poll() is not None:
        return ""
    processes = ranks(launcher)
    if way == "launcher":
        launcher.kill()
        launcher.wait()
        for process in processes:  # they save and leave
            process.wait(timeout=120)
    elif way == "one rank":
        chance.choice(processes).kill()
    elif way == "all ranks":
        for process in processes:
            process.kill()
    else:
        for process in (psutil.Process(launcher.pid), *processes):
            process.kill()
        launcher.wait()
    return f"{way} of {len(processes)} at step {saved(out)}"


def _writing(out: Path) -> bool:
    """Parts, or one file, on their way to become a state."""
    return any((out / "checkpoints").glob(".step-*"))


def one_run(out: Path, way: str, chance: random.Random) -> tuple[str, int]:
    """Hurt it once and let it come to its end. Returns what was done, and the exit code of the last part."""
    shard, processes = chance.choice(["none", "full"]), 2
    process = start(out, processes, shard)
    story = hurt(process, out, way, chance) or "ended before it was hurt"
    if way in RESTARTED or story.startswith("ended"):
        return f"{shard:4}  {story}", process.wait()
    after = chance.choice([1, 2, 3])
    return f"{shard:4}  {story}, then {after}", start(out, after, shard, "--resume").wait()


def judge(out: Path, peace: Path, code: int) -> str:
    """Empty, or what is wrong."""
    if code:
        return f"exit code {code}: see {out}.log"
    if samples_by_step(Path(f"{out}-samples")) != samples_by_step(Path(f"{peace}-samples")):
        return "other samples"
    found, expected = (json.loads((p / "result.json").read_text())["val"]["nll"] for p in (out, peace))
    return "" if math.isclose(found, expected, rel_tol=TOLERANCE) else f"loss {found}, in peace {expected}"


def campaign(runs: int, folder: Path, seed: int = 0, ways: tuple[str, ...] = WAYS) -> Iterator[Outcome]:
    chance, peace = random.Random(seed), folder / "peace"
    if start(peace, 1, "none").wait():
        raise RuntimeError(f"the run in peace failed:\n{Path(f'{peace}.log').read_text()}")
    for number in range(runs):
        out, way = folder / f"hurt-{number}", ways[number % len(ways)]
        story, code = one_run(out, way, chance)
        wrong = judge(out, peace, code)
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
            if not outcome.good:
                print(Path(place, f"hurt-{len(outcomes) - 1}.log").read_text()[-4000:], file=sys.stderr)
    bad = sum(not outcome.good for outcome in outcomes)
    print(f"{len(outcomes)} runs, {bad} not as in peace")
    sys.exit(bad > 0)
