"""Every error that a user of vitkit can meet.

VitkitError                  the root: catch it to catch them all
├── UsageError               what was asked for cannot be done as asked          (exit code 2)
│   ├── ConfigError          a setting is wrong, unknown or contradicts another
│   ├── UnknownNameError     no model, recipe, data set, class … of that name
│   ├── InputError           images that this model cannot take
│   │   └── NotFiniteError   scores of such images that are NaN or infinite
│   ├── DataError            a data set that cannot be read or used
│   │   └── CorruptImageError  one image of it that cannot be decoded
│   ├── WeightsError         a checkpoint or model folder that does not fit
│   └── MissingExtraError    an optional dependency is not installed
├── WorkError                the work itself failed on the way                   (exit code 1)
└── Interrupted              asked to stop, and the state is saved               (exit code 130 or 143)

Each message is one line that says what is wrong, where, and what to do about it.
"""

import difflib
from collections.abc import Iterable


def first_line(error: Exception) -> str:
    """What another library says, as much of it as goes into one line."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def is_out_of_memory(error: Exception) -> bool:
    """Python's own, a GPU's (torch's error by its name: torch need not be loaded), or that of torch's CPU allocator."""
    named = type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or named or "can't allocate memory" in str(error)


class VitkitError(Exception):
    """The root of all errors raised on purpose by vitkit."""

    exit_code = 1


class UsageError(VitkitError, ValueError):
    exit_code = 2


class ConfigError(UsageError):
    pass


class UnknownNameError(UsageError):
    """Says which name is unknown and suggests the nearest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "") -> None:
        super().__init__(f"unknown {kind} {name!r}{suggest(name, known)}{where and f' ({where})'}")


class InputError(UsageError):
    pass


class NotFiniteError(InputError):
    pass


class DataError(UsageError):
    pass


class CorruptImageError(DataError):
    """Keeps the image's name and what is wrong with it apart, for tables that count the reasons."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)  # both, so that the error survives the way out of a worker process
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class WeightsError(UsageError):
    pass


class MissingExtraError(UsageError):
    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'vitkit[{extra}]'")


class WorkError(VitkitError):
    pass


class Interrupted(VitkitError):
    def __init__(self, signal: int, where: str) -> None:
        super().__init__(f"interrupted; the state is saved, go on with --resume ({where})")
        self.exit_code = 128 + signal


def suggest(name: str, known: Iterable[str]) -> str:
    """The end of a message: the nearest known names, or all of them when they are few, or nothing."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return "; did you mean " + " or ".join(repr(n) for n in near) + "?"
    if len(names) <= 12:
        return "; known: " + ", ".join(names)
    return ""
