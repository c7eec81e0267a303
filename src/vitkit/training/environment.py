"""What a result depends on besides the recipe: versions and hardware."""

import os
import platform
import shlex
import sys
from importlib import metadata
from typing import Any

import torch

from vitkit.training.distributed import job_name
from vitkit.version import __version__


def describe_environment() -> dict[str, Any]:
    packages = ("torch", "numpy", "pillow", "einops")
    return {
        "vitkit": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: found for name in packages if (found := version(name))},
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": shlex.join(sys.argv),
        "launch": job_name(),
    }


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
