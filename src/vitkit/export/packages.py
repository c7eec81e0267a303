"""Packages that only some ways of running a model need: imported when used, missed with the line that installs them."""

import os
from importlib import import_module
from types import ModuleType

from vitkit.errors import MissingExtraError

# NNCF reports its use over the network unless it believes to run in CI, and has no other switch.
_QUIET = {"nncf": ("NNCF_CI", "1")}


def need(package: str, what: str) -> ModuleType:
    """The package, or a one-line refusal that says how to get it. `what` begins the sentence: "ONNX export"."""
    if package in _QUIET:
        os.environ.setdefault(*_QUIET[package])
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtraError(what, error.name or package, "export") from error


def threads() -> int:
    """What OMP_NUM_THREADS asks for, which torch obeys and the runtimes do not; 0: let the runtime choose."""
    asked = os.environ.get("OMP_NUM_THREADS", "").strip()
    return int(asked) if asked.isdecimal() else 0
