"""Imports optional packages when they are needed, and names the install command if one is missing."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from vitkit.errors import MissingExtraError

# NNCF sends usage statistics unless this variable is set when it is imported. It has no other switch.
_IMPORT_ENVIRONMENT = {"nncf": {"NNCF_CI": "1"}}
_lock = threading.RLock()


def require_package(package: str, purpose: str, extra: str = "export") -> ModuleType:
    """Return the imported package. If it is missing, raise an error with the command that installs `extra`.

    `purpose` is the subject of the message, such as "ONNX export".
    """
    try:
        with environment(_IMPORT_ENVIRONMENT.get(package.split(".")[0], {})):
            return import_module(package)
    except ModuleNotFoundError as error:
        raise MissingExtraError(purpose, error.name or package, extra) from error


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the context, for one thread at a time."""
    with _lock:
        before = {name: os.environ.get(name) for name in values}
        os.environ.update(values)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})
