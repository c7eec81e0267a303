"""Parse and format amounts: 80GB or 6 GiB as input, 4.2 GiB or 3.1 h as output."""

import re

from vitkit.errors import UsageError

_BYTES = {"": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def parse_bytes(text: str, option: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not found or found[2].upper() not in _BYTES or not float(found[1]):
        raise UsageError(f"{option} {text}: expected a size such as 256MB or 6GiB")
    return float(found[1]) * _BYTES[found[2].upper()]


def format_bytes(count: float) -> str:
    for name, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if count >= size:
            return f"{count / size:,.1f} {name}"
    return f"{count / 2**10:,.1f} KiB" if count else "0"


def format_seconds(seconds: float) -> str:
    for name, size in (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 2 * size or size == 1 <= seconds:
            return f"{seconds / size:,.1f} {name}"
    return f"{seconds * 1000:,.1f} ms" if seconds else "0"
