"""Kill a training run at random instants, resume it each time, and compare the final weights with a run left in peace.

    python -m tests.faults.kill --kills 100 [--spread]

Every step is saved, so that many of the kills fall into a save. The number of worker processes changes from one start
to the next. With --spread nothing is dropped out, and the steps are spread over two cores. Prints one line per kill and
the two hashes; exits with 1 where they differ.
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
SPREAD = {**SETTINGS, "config.dropout": "0.0", "machine.threads": "2"}


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


def kill_once(out: Path, settings: Settings, chance: random.Random) -> tuple[bool, str]:
    """Start or resume, wait until it has come on by a step, then a random while; kill. False when it ended before."""
    before = newest(out)
    process = subprocess.Popen(
        command(out, settings, chance.choice([0, 0, 1, 2]), "--resume"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and newest(out) == before:
        time.sleep(0.005)
    time.sleep(chance.uniform(0.0, 0.4))
    alive = process.poll() is None
    if alive:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too
    process.wait()
    return alive, newest(out)


def campaign(
    kills: int, folder: Path, seed: int = 0, say: bool = True, settings: Settings = SETTINGS
) -> tuple[str, str, int]:
    """The hash of the run left in peace, that of the last run that was killed, and how many kills there were."""
    chance = random.Random(seed)
    expected = finish(folder / "whole", settings)
    done, round_ = 0, 0
    while done < kills:
        out = folder / f"killed-{round_}"
        while done < kills:
            alive, step = kill_once(out, settings, chance)
            if not alive:
                break
            done += 1
            if say:
                torn = len(list((out / "checkpoints").glob(".*.tmp")))
                print(f"kill {done:3}  newest {step}  torn files {torn}", flush=True)
        found = finish(out, settings, "--resume")
        if say:
            print(f"round {round_}: {found[:16]} {'equal' if found == expected else 'DIFFERENT'}", flush=True)
        if found != expected:
            break
        round_ += 1
    return expected, found, done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spread", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        expected, found, kills = campaign(
            options.kills, Path(place), options.seed, settings=SPREAD if options.spread else SETTINGS
        )
    print(f"{kills} kills; in peace {expected}; killed {found}; {'equal' if expected == found else 'DIFFERENT'}")
    sys.exit(expected != found)
