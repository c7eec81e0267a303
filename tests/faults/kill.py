"""Kill a training run at random times, resume it, and compare the weights with those of an uninterrupted run.

    python -m tests.faults.kill --kills 100 [--data-parallel]

Every step is saved, so many kills hit a save. The number of worker processes changes from start to start. With
--data-parallel two cores share each step. Prints one line per kill and the two hashes. Exits with 1 if they differ.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

SETTINGS = {
    "config.depth": "2",
    "config.dropout": "0.1",
    "budget.epochs": "4",
    "budget.validate_every": "0.25",
    "keep.every_minutes": "0",
}
DATA_PARALLEL = {**SETTINGS, "machine.threads": "2"}


Settings = Mapping[str, str]


def command(out: Path, settings: Settings, workers: int, *more: str) -> list[str]:
    words = [sys.executable, "-m", "vitkit", "train", "digits", "--out", str(out), "--json", *more]
    for key, value in {**settings, "machine.workers": str(workers)}.items():
        words += ["--set", f"{key}={value}"]
    return words


def finish(out: Path, settings: Settings, *more: str) -> str:
    done = subprocess.run(command(out, settings, 0, *more), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the run failed:\n{done.stderr}")
    return json.loads(done.stdout)["weights_sha256"]


def newest(out: Path) -> str:
    return max((p.name for p in (out / "checkpoints").glob("step-*.json")), default="")


def kill_once(out: Path, settings: Settings, rng: random.Random) -> tuple[bool, str]:
    """Start or resume, wait for a step and a random time, then kill. Return False if the run ended before."""
    before = newest(out)
    process = subprocess.Popen(
        command(out, settings, rng.choice([0, 0, 1, 2]), "--resume"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and newest(out) == before:
        time.sleep(0.005)
    time.sleep(rng.uniform(0.0, 0.4))
    alive = process.poll() is None
    if alive:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too
    process.wait()
    return alive, newest(out)


def campaign(
    kills: int, folder: Path, seed: int = 0, verbose: bool = True, settings: Settings = SETTINGS
) -> tuple[str, str, int]:
    """Return the hash of the uninterrupted run, that of the last killed run, and the number of kills."""
    rng = random.Random(seed)
    expected = finish(folder / "uninterrupted", settings)
    done, round_ = 0, 0
    while done < kills:
        out = folder / f"killed-{round_}"
        while done < kills:
            alive, step = kill_once(out, settings, rng)
            if not alive:
                break
            done += 1
            if verbose:
                partial = len(list((out / "checkpoints").glob(".*.tmp")))
                print(f"kill {done:3}  newest {step}  partial files {partial}", flush=True)
        found = finish(out, settings, "--resume")
        if verbose:
            print(f"round {round_}: {found[:16]} {'equal' if found == expected else 'DIFFERENT'}", flush=True)
        if found != expected:
            break
        round_ += 1
    return expected, found, done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-parallel", "--spread", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        expected, found, kills = campaign(
            options.kills, Path(place), options.seed, settings=DATA_PARALLEL if options.data_parallel else SETTINGS
        )
    print(f"{kills} kills; uninterrupted {expected}; killed {found}; {'equal' if expected == found else 'DIFFERENT'}")
    sys.exit(expected != found)
