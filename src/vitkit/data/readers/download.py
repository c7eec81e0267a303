"""Fetch a file whose content is known: it arrives whole and right, or not at all."""

import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitkit.errors import DataError

CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Remote:
    name: str
    sha256: str
    homes: tuple[str, ...]  # folders on the web that hold it, the official one first


def fetch(remote: Remote, folder: Path, advice: str) -> Path:
    """The file in `folder`, downloaded if it is not there. `advice` ends the error: what to place where by hand."""
    target = folder / remote.name
    if target.exists():
        return target
    reasons = []
    for home in remote.homes:
        url = f"{home.rstrip('/')}/{remote.name}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _download(url, remote, target)
            return target
        except (OSError, http.client.HTTPException, ValueError) as error:
            reasons.append(f"{url}: {_reason(error)}")
    raise DataError(f"cannot download {remote.name} ({'; '.join(reasons)}); {advice}")


def _download(url: str, remote: Remote, target: Path) -> None:
    """Into a temporary file beside the target, renamed once length and checksum are right."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    digest, received = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response, open(temporary, "wb") as file:
            length = response.headers.get("Content-Length")
            expected = int(length) if length else None
            with _bar(remote.name, expected) as advance:
                while chunk := response.read(CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    received += len(chunk)
                    advance(len(chunk))
        if expected is not None and received != expected:
            raise ValueError(f"broke off after {received:,} of {expected:,} bytes")
        if digest.hexdigest() != remote.sha256:
            raise ValueError(f"its SHA-256 is {digest.hexdigest()}, not {remote.sha256}")
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _bar(name: str, total: int | None) -> Iterator[Any]:
    """Calls advance a bar where a person is looking."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.advance(task, count)


def _reason(error: Exception) -> str:
    answered = isinstance(error, urllib.error.HTTPError)  # with a number, which is worth showing
    cause = error.reason if isinstance(error, urllib.error.URLError) and not answered else error
    return str(cause) or type(cause).__name__
