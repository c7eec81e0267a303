"""Repeat a short training run many times, and count how many different weights come out.

    python -m tests.faults.repeat --runs 200

Precision and compilation are left to the run (`auto`), two threads share each step, and the model has dropout and
stochastic depth. Every run has an empty cache of its own. A new process is started for every tenth run, and every
second process competes with a busy one. Prints one line per run. Exits with 1 if there is more than one set of weights.
"""

import argparse
import collections
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from vitkit.training.run_dir import describe_environment

RUNS_PER_PROCESS = 10
SETTINGS = [
    "config.depth=2", "config.width=32", "config.mlp_width=64", "config.dropout=0.1", "config.attention_dropout=0.1",
    "config.drop_path=0.2", "budget.epochs=0.3", "budget.validate_every=0.2", "optimizer.name=muon",
    "machine.precision=auto", "machine.compile=auto", "machine.threads=2",
]  # fmt: skip

RUN = """
import json, os, sys
from pathlib import Path
from vitkit.training import get_recipe
from vitkit.training.train import train

folder, first, last, *settings = sys.argv[1:]
for number in range(int(first), int(last)):
    os.environ["VITKIT_CACHE"] = f"{folder}/cache-{number}"
    out = Path(folder, f"run-{number}")
    digest = train(get_recipe("digits").override(settings), out, quiet=True).weights_sha256
    print(json.loads((out / "environment.json").read_text())["choice"], digest, sep="\\t", flush=True)
"""


def campaign(runs: int, folder: Path, verbose: bool = True) -> collections.Counter[tuple[str, str]]:
    """Return how often each pair of choice and weights came out."""
    found: collections.Counter[tuple[str, str]] = collections.Counter()
    for process, first in enumerate(range(0, runs, RUNS_PER_PROCESS)):
        last = min(first + RUNS_PER_PROCESS, runs)
        busy = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if process % 2 else None
        try:
            command = [sys.executable, "-c", RUN, str(folder), str(first), str(last), *SETTINGS]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            if busy:
                busy.kill()
                busy.wait()
        if done.returncode:
            raise RuntimeError(f"a run failed:\n{done.stderr}")
        for number, line in enumerate(done.stdout.splitlines(), first + 1):
            choice, digest = line.split("\t")
            found[choice, digest] += 1
            if verbose:
                print(f"run {number:3}  {choice}  {digest[:16]}  {'disturbed' if busy else 'alone'}", flush=True)
    return found


def heading() -> str:
    machine = describe_environment()
    flags = [name for name, present in torch.cpu.get_capabilities().items() if present is True]
    return (
        f"# python -m tests.faults.repeat {' '.join(sys.argv[1:])} · {datetime.date.today()} · {machine['processor']} "
        f"({', '.join(flags)}), {os.cpu_count()} cores · Python {machine['python']}, "
        f"torch {machine['packages']['torch']} · {json.dumps(SETTINGS)}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    options = parser.parse_args()
    print(heading(), flush=True)
    with tempfile.TemporaryDirectory() as place:
        counts = campaign(options.runs, Path(place))
    for (choice, digest), count in counts.most_common():
        print(f"{count} runs: {choice}, weights {digest}")
    sys.exit(len(counts) != 1)
