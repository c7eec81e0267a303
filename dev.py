#!/usr/bin/env python3
"""Set up and run: `python3 dev.py demo` or `python3 dev.py test`. Needs Python 3.11 or newer, and nothing else.

The first call makes a virtual environment in .venv and installs the pinned versions of constraints.txt; later calls
find it up to date and go straight to work.
"""

import hashlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")

# task → what it does, the extras it needs, the commands it runs
TASKS: dict[str, tuple[str, str, list[list[str]]]] = {
    "demo": ("train, evaluate, explain and report on handwritten digits", "demo,data,hub,serve", [["vitkit", "demo"]]),
    "test": ("run all tests", "dev", [["pytest", "-n", "2", "--dist", "loadfile"]]),
    "lint": ("look for mistakes and odd formatting", "dev", [["ruff", "check"], ["ruff", "format", "--check"]]),
    "types": ("check the types", "dev", [["mypy"]]),
    "format": ("format the source", "dev", [["ruff", "check", "--fix"], ["ruff", "format"]]),
    "docs": ("build the site into site/: runs the chapters that changed", "docs", [["python", "docs/build.py"]]),
    "setup": ("only set up", "dev", []),
}


def main(arguments: list[str]) -> int:
    task, *more = arguments or ["help"]
    if task not in TASKS:
        print(__doc__.strip(), *(f"  {name:8}{what}" for name, (what, _, _) in TASKS.items()), sep="\n")
        return 0 if task in ("help", "-h", "--help") else 2
    _, extras, commands = TASKS[task]
    set_up(extras)
    for command in commands:
        say("running", *command, *more)
        code = subprocess.call([str(BIN / command[0]), *command[1:], *more], cwd=ROOT)
        if code:
            return code
    return 0


def set_up(extras: str) -> None:
    if sys.version_info < (3, 11):  # noqa: UP036  # this file runs before pip can check
        sys.exit(f"vitkit needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    stamp, wanted = VENV / f".vitkit-{extras.replace(',', '-')}", fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not (BIN / "pip").exists() and not (BIN / "pip.exe").exists():
        say("making a virtual environment in", str(VENV.relative_to(ROOT)))
        try:
            venv.create(VENV, with_pip=True)
        except subprocess.CalledProcessError:  # Debian keeps ensurepip in a package of its own
            sys.exit("stopped: this Python cannot make virtual environments; on Debian: apt-get install python3-venv")
    refuse_cuda_by_accident()
    say(f"installing vitkit[{extras}] with the versions of constraints.txt (a few minutes the first time)")
    pip("install", "--quiet", "-c", "constraints.txt", "-e", f".[{extras}]")
    stamp.write_text(wanted)


def refuse_cuda_by_accident() -> None:
    """On Linux an index may offer torch with several GB of CUDA libraries. Nobody should get those unasked."""
    if "VITKIT_ALLOW_CUDA" in os.environ:
        return
    plan = pip("install", "--quiet", "--dry-run", "--report", "-", "-c", "constraints.txt", "torch", read=True)
    names = [entry["metadata"]["name"] for entry in json.loads(plan)["install"]]
    cuda = [name for name in names if name.startswith(("nvidia-", "cuda-"))]
    if cuda:
        pinned = next(
            line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch==")
        )
        sys.exit(
            f"stopped: your package index would install torch with {len(cuda)} CUDA packages (several GB). Install the "
            f"CPU build of this very version first: {(BIN / 'python').relative_to(ROOT)} -m pip install {pinned} "
            "--index-url URL, with the URL that pytorch.org names for CPU builds under 'Get started'; "
            "or set VITKIT_ALLOW_CUDA=1 if the CUDA build is what you want."
        )


def pip(*arguments: str, read: bool = False) -> str:
    command = [str(BIN / "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE if read else None, text=True)
    if done.returncode:
        sys.exit(f"stopped: '{' '.join(command[1:])}' failed (see above)")
    return done.stdout or ""


def fingerprint() -> str:
    return hashlib.sha256(b"".join((ROOT / f).read_bytes() for f in ("pyproject.toml", "constraints.txt"))).hexdigest()


def say(*words: str) -> None:
    print("→", *words, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
