"""Checks of output paths before the work starts, so that no result is lost at the end."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from vitkit.atomic import write_atomic
from vitkit.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_output_file(name: str, option: str = "--out") -> Path:
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{option} {name}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {name}: folder {path.parent} does not exist; create it or choose another {option}")
    _check_allowed(path.parent, name, option)
    return path


def check_figure_file(name: str, option: str) -> Path:
    path = check_output_file(name, option)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"{option} {name}: expected a file name that ends in .png, .svg or .pdf")
    return path


def write_figure(path: Path, figure: "Figure") -> None:
    """Write a figure atomically, in the format of the file's suffix."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:], dpi=130, facecolor="white")
    write_atomic(path, content.getvalue())


def check_output_dir(name: str, option: str = "--out") -> Path:
    path = Path(name)
    nearest = next(p for p in (path, *path.parents) if p.exists())
    if not nearest.is_dir():
        raise UsageError(f"{option} {name}: {nearest} is a file; choose another {option}")
    _check_allowed(nearest, name, option)
    return path


def _check_allowed(folder: Path, name: str, option: str) -> None:
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{option} {name}: {folder} is not writable; choose another {option}")
