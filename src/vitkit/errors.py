"""All errors that vitkit raises on purpose.

VitkitError                    catch it to catch them all
├── UsageError                 the request cannot be carried out as given          (exit code 2)
│   ├── ConfigError            a setting is wrong, unknown or contradicts another
│   ├── UnknownNameError       no model, recipe, data set, class … has this name
│   ├── InputError             images that the model does not accept
│   │   └── NotFiniteError     the scores of images are NaN or infinite
│   ├── DataError              a data set cannot be read or used
│   │   └── CorruptImageError  an image cannot be decoded
│   ├── WeightsError           a checkpoint or model folder does not fit
│   └── MissingExtraError      an optional dependency is not installed
├── WorkError                  the work failed on the way                          (exit code 1)
└── Interrupted                stopped by a signal, with the state saved           (exit code 130 or 143)

Each message is one line: what is wrong, where, and what to do.
"""

import difflib
from collections.abc import Iterable, Sequence


class VitkitError(Exception):
    """The root of all errors that vitkit raises on purpose."""

    exit_code = 1


class UsageError(VitkitError, ValueError):
    """The request cannot be fulfilled as it was made."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is wrong, unknown or contradicts another."""


class UnknownNameError(UsageError):
    """Names what is unknown and suggests the nearest known names. `near` overrides that choice."""

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "", near: Sequence[str] = ()) -> None:
        suggestion = _did_you_mean(near) if near else suggest(name, known)
        super().__init__(f"unknown {kind} {name!r}{suggestion}{where and f' ({where})'}")


class InputError(UsageError):
    """The model cannot take these images."""


class NotFiniteError(InputError):
    """The scores of these images are NaN or infinite."""


class DataError(UsageError):
    """A data set cannot be read or used."""


class CorruptImageError(DataError):
    """Keeps the name of the image and the reason apart, for tables that count reasons."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)  # both arguments, so that the error can be pickled
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class WeightsError(UsageError):
    """A checkpoint or model folder does not fit."""


class MissingExtraError(UsageError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'vitkit[{extra}]'")


class WorkError(VitkitError):
    """The work failed on the way."""


class Interrupted(VitkitError):
    """A signal stopped the work after its state was saved."""

    def __init__(self, signal: int, where: str) -> None:
        super().__init__(f"interrupted; the state is saved, continue with --resume, or resume=True in Python ({where})")
        self.exit_code = 128 + signal


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message: the nearest known names, all of them if they are few, or nothing."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return _did_you_mean(near)
    if len(names) <= 12:
        return "; known: " + ", ".join(names)
    return ""


def _did_you_mean(names: Iterable[str]) -> str:
    return f"; did you mean {' or '.join(map(repr, names))}?"


def first_line(error: Exception) -> str:
    """Return the first line of the message of another library's error."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether Python, a GPU or torch's CPU allocator ran out of memory. Does not import torch."""
    is_gpu_error = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or is_gpu_error or "can't allocate memory" in str(error)
