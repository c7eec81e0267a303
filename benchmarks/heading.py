"""Write the heading of every result: the command, the date, the machine and the versions."""

import datetime
import platform
import shlex
import sys
from pathlib import Path

import torch

from vitkit.training.run_dir import describe_environment, package_version


def heading(*packages: str) -> str:
    """Return two lines. `packages` are named in addition to torch. Absolute paths are shortened to their last part."""
    machine = describe_environment()
    script, *arguments = sys.argv
    arguments = [Path(argument).name if Path(argument).is_absolute() else argument for argument in arguments]
    versions = [*(f"{name} {package_version(name)}" for name in ("torch", *packages)), " ".join(platform.libc_ver())]
    hardware = machine["gpu"] or f"{machine['processor']} ({torch.backends.cpu.get_cpu_capability()})"
    return (
        f"# {shlex.join(['python', f'benchmarks/{Path(script).name}', *arguments])}\n"
        f"# {datetime.date.today()} · {hardware}, {machine['cores']} cores, {machine['threads']} threads · "
        f"Python {machine['python']}, vitkit {machine['vitkit']}, {', '.join(versions)}\n"
    )
