#!/usr/bin/env python3
"""Set up and run: `python3 dev.py demo` or `python3 dev.py test`. Needs Python 3.11 or newer, and nothing else.

The first call creates a virtual environment in .venv with the versions of constraints.txt. Later calls reuse it.
A machine with an NVIDIA GPU gets the build of torch that the configured package index offers, on Linux one with CUDA.
A machine without such a GPU gets the CPU build.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"  # PyTorch's own index of CPU builds
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")  # one folder per GPU if the driver is loaded

# task → what it does, the extras it needs, the commands it runs
TASKS: dict[str, tuple[str, str, list[list[str]]]] = {
    "demo": ("train, evaluate, explain and report on handwritten digits", "demo,data,hub,serve", [["vitkit", "demo"]]),
    "test": ("run all tests", "dev", [["pytest", "-n", "2", "--dist", "loadfile"]]),
    "lint": ("check the source with ruff", "dev", [["ruff", "check"], ["ruff", "format", "--check"]]),
    "types": ("check the types with mypy", "dev", [["mypy"]]),
    "format": ("format the source with ruff", "dev", [["ruff", "check", "--fix"], ["ruff", "format"]]),
    "docs": ("build the documentation into site/", "docs", [["python", "docs/build.py"]]),
    "wheel": ("build the wheel, install it into a fresh environment, run the demo from it", "", []),
    "setup": ("set up the development environment", "dev", []),
}


def main(arguments: list[str]) -> int:
    task, *more = arguments or ["help"]
    if task not in TASKS:
        print(__doc__.strip(), *(f"  {name:8}{what}" for name, (what, _, _) in TASKS.items()), sep="\n")
        return 0 if task in ("help", "-h", "--help") else 2
    if sys.version_info < (3, 11):  # noqa: UP036  # this file runs before pip can check
        sys.exit(f"vitkit needs Python 3.11 or newer, this is {sys.version.split()[0]}")
    if task == "wheel":
        return check_wheel()
    _, extras, commands = TASKS[task]
    set_up(extras)
    for command in commands:
        say("running", *command, *more)
        code = subprocess.call([program(VENV, command[0]), *command[1:], *more], cwd=ROOT)
        if code:
            return code
    return 0


def set_up(extras: str) -> None:
    """Install vitkit with these extras into .venv, unless it already holds them in these versions."""
    stamp, wanted = VENV / f".vitkit-{extras.replace(',', '-')}", fingerprint()
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        install(VENV, "-e", f".[{extras}]")
        stamp.write_text(wanted, encoding="utf-8")


def check_wheel() -> int:
    """Build the wheel, install it into a fresh environment, and run the demo from it outside of the clone."""
    with tempfile.TemporaryDirectory() as folder:
        work, fresh = Path(folder), Path(folder) / "venv"
        create(fresh)
        shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # setuptools would pack what an older build left
        say("building the wheel")
        pip(fresh, "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ".")
        [wheel] = work.glob("*.whl")
        source = {p.relative_to(ROOT / "src").as_posix() for p in (ROOT / "src" / "vitkit").rglob("*") if p.is_file()}
        missing = {name for name in source if "__pycache__" not in name} - set(zipfile.ZipFile(wheel).namelist())
        if missing:
            sys.exit(f"stopped: {wheel.name} lacks {', '.join(sorted(missing))}")
        install(fresh, f"{wheel}[demo]")
        say("running vitkit demo from", wheel.name)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.call([program(fresh, "vitkit"), "demo", "--epochs", "1"], cwd=work, env=environment)


def install(where: Path, *what: str) -> None:
    """Install into this environment, which is created if need be, in the versions of constraints.txt."""
    create(where)
    if "VITKIT_ALLOW_CUDA" not in os.environ and not has_nvidia_gpu():
        avoid_cuda_packages(where)
    say("installing", *what, "with the versions of constraints.txt (a few minutes the first time)")
    pip(where, "install", "--quiet", "-c", "constraints.txt", *what)


def create(where: Path) -> None:
    if not Path(program(where, "pip")).exists():
        say("creating a virtual environment in", str(where))
        try:
            venv.create(where, with_pip=True)
        except subprocess.CalledProcessError:  # Debian keeps ensurepip in a package of its own
            sys.exit("stopped: this Python cannot create virtual environments; on Debian: apt-get install python3-venv")


def has_nvidia_gpu() -> bool:
    """Return whether this machine has an NVIDIA GPU: by its driver's files, or by `nvidia-smi -L`."""
    if NVIDIA_GPUS.is_dir() and any(NVIDIA_GPUS.iterdir()):
        return True
    found = shutil.which("nvidia-smi")
    return bool(found) and "GPU " in subprocess.run([found, "-L"], capture_output=True, text=True).stdout


def avoid_cuda_packages(where: Path) -> None:
    """Install the CPU build of torch if the configured package index would install it with CUDA packages.

    Nothing is done if a CPU build is installed already or is what the configured index offers.
    """
    report = pip(where, "install", "--quiet", "--dry-run", "--report", "-", "-c", "constraints.txt", "torch", read=True)
    names = [entry["metadata"]["name"] for entry in json.loads(report)["install"]]
    cuda = [name for name in names if name.startswith(("nvidia-", "cuda-"))]
    if not cuda:
        return
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    build = next(line for line in lines if line.startswith("torch==")) + "+cpu"  # no other index has this version
    say(f"no NVIDIA GPU found: installing {build} from {CPU_WHEELS}")
    options = ["--quiet", "--no-deps", "--retries", "1", "--timeout", "15", "--index-url", CPU_WHEELS]
    done = run_pip(where, "install", *options, build, capture_output=True)
    if done.returncode:
        reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
        say(f"could not install it from there ({reason}); continuing with the configured package index,",
            f"which offers torch with {len(cuda)} CUDA packages (several GB)")  # fmt: skip


def pip(where: Path, *arguments: str, read: bool = False) -> str:
    """Run pip in this environment and return what it printed if `read`; exit if it fails."""
    done = run_pip(where, *arguments, stdout=subprocess.PIPE if read else None)
    if done.returncode:
        sys.exit(f"stopped: 'pip {' '.join(arguments)}' failed (see above)")
    return done.stdout or ""


def run_pip(where: Path, *arguments: str, **how: object) -> "subprocess.CompletedProcess[str]":
    command = [program(where, "python"), "-m", "pip", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, cwd=ROOT, text=True, **how)


def program(where: Path, name: str) -> str:
    """Return the path of a program in this environment."""
    return str(where / "Scripts" / f"{name}.exe" if os.name == "nt" else where / "bin" / name)


def fingerprint() -> str:
    return hashlib.sha256(b"".join((ROOT / f).read_bytes() for f in ("pyproject.toml", "constraints.txt"))).hexdigest()


def say(*words: str) -> None:
    print("→", *words, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
