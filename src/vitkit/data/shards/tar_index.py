"""Tars of others, read through once to learn what lies where; what was learned is kept in the cache.

A WebDataset tar holds, for every sample, files that share a name up to the first dot: an image, and its class in a
`.cls` file (a number, or a name), a `.json` with the label under its key, or a `.txt`.
"""

import hashlib
import io
import json
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from vitkit.atomic import write_atomic
from vitkit.data.decode import SUFFIXES
from vitkit.data.fingerprint import STAMP_BYTES, hash_content
from vitkit.data.shards.reader import Names
from vitkit.data.shards.storage import Stored, open_file, retried
from vitkit.errors import DataError, WorkError
from vitkit.runtime.cache import cache_folder

LABELS = (".cls", ".json", ".txt")
MAX_LABEL = 2**20  # bytes: what is longer is no label
VERSION = 2  # of what is kept: another one is scanned anew


@dataclass(frozen=True)
class Scanned:
    """One shard. `broken`: why it ends before its end."""

    place: np.ndarray
    size: np.ndarray
    crc: np.ndarray
    stamps: np.ndarray
    names: Names
    labels: list[str]
    broken: str = ""


def scan_tar(stored: Stored, label: str) -> Scanned:
    key = hashlib.sha256(f"{VERSION}\n{label}\n{stored.state}\n{stored.size}".encode()).hexdigest()[:32]
    kept = cache_folder() / "shards" / f"{key}.npz"
    try:
        with np.load(kept, allow_pickle=False) as file:
            c = {name: file[name] for name in file.files}
        names, labels = (Names(c[n].tobytes(), c[f"{n}_ends"]) for n in ("names", "labels"))
        return Scanned(c["place"], c["size"], c["crc"], c["stamps"], names, list(labels), str(c["broken"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass
    found = retried(lambda: _scan(stored, label), stored.path)
    _keep(kept, found)
    return found


def _keep(path: Any, found: Scanned) -> None:
    """Where the disk lets us: a cache is not worth an error."""
    file, labels = io.BytesIO(), Names.of(found.labels)
    texts = {"names": found.names, "labels": labels}
    columns = {n: np.frombuffer(t.text, np.uint8) for n, t in texts.items()}
    columns |= {f"{n}_ends": t.ends for n, t in texts.items()}
    numbers = {n: getattr(found, n) for n in ("place", "size", "crc", "stamps")}
    np.savez(file, broken=np.array(found.broken), **columns, **numbers)  # type: ignore[arg-type]  # as in index.py
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, file.getvalue())
    except (OSError, WorkError):
        return


def _scan(stored: Stored, label: str) -> Scanned:
    rows: list[tuple[int, int, int, bytes, str, str]] = []
    broken = ""
    try:
        for sample in _samples(stored.path):
            rows.append(_row(sample, stored.path, label))
    except _Broken as error:
        broken = f"{error} after {len(rows):,} images"
    place, size, crc, stamps, names, labels = zip(*rows, strict=True) if rows else ((),) * 6
    return Scanned(
        np.array(place, np.int64),
        np.array(size, np.int64),
        np.array(crc, np.uint32),
        np.frombuffer(b"".join(stamps), np.uint8).reshape(-1, STAMP_BYTES),
        Names.of(names),
        list(labels),
        broken,
    )


class _Broken(Exception):
    pass


@dataclass
class _Sample:
    key: str
    image: tuple[int, bytes, str] | None = None  # (first byte, content, suffix)
    label: tuple[str, bytes] | None = None  # (suffix, content)


def _samples(path: str) -> Iterator[_Sample]:
    """Files that stand one after the other and share a key. The last one of a tar that breaks off is not whole."""
    sample = None
    with open_file(path) as raw:
        try:
            with tarfile.open(fileobj=raw, mode="r:") as tar:
                while (member := tar.next()) is not None:
                    if not member.isfile() or PurePosixPath(member.name).name.startswith("."):
                        continue
                    key, suffix = _key(member.name)
                    if sample is None or sample.key != key:
                        if sample is not None:
                            yield sample
                        sample = _Sample(key)
                    _put(sample, suffix, member, tar)
                _check_end(raw, tar)
        except (tarfile.ReadError, EOFError) as error:
            raise _Broken(f"breaks off ({error})") from error
    if sample is not None:
        yield sample


def _put(sample: _Sample, suffix: str, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
    if f".{suffix.split('.')[-1]}" in SUFFIXES and sample.image is None:
        sample.image = member.offset_data, _content(tar, member), suffix
    elif f".{suffix}" in LABELS and member.size <= MAX_LABEL:
        rank = LABELS.index(f".{suffix}")
        if sample.label is None or rank < LABELS.index(sample.label[0]):
            sample.label = f".{suffix}", _content(tar, member)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    content = file.read() if file else b""
    if len(content) < member.size:
        raise tarfile.ReadError("unexpected end of data")
    return content


def _check_end(raw: Any, tar: tarfile.TarFile) -> None:
    """A whole tar ends with two blocks of zeros; Python's reader takes any end for one."""
    raw.seek(tar.offset)
    if raw.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("no end of archive")


def _key(name: str) -> tuple[str, str]:
    """Up to the first dot of the file's name, and the rest: WebDataset's rule."""
    folder, _, file = name.rpartition("/")
    stem, _, suffix = file.partition(".")
    return f"{folder}/{stem}" if folder else stem, suffix.lower()


def _row(sample: _Sample, path: str, label: str) -> tuple[int, int, int, bytes, str, str]:
    where = f"{path}/{sample.key}"
    if sample.image is None:
        raise DataError(f"{where}: no image; expected one of {', '.join(sorted(SUFFIXES))}")
    place, content, suffix = sample.image
    name = f"{sample.key}.{suffix}"
    return place, len(content), zlib.crc32(content), hash_content(content), name, _label(sample, where, label)


def _label(sample: _Sample, where: str, key: str) -> str:
    if sample.label is None:
        raise DataError(f"{where}: no label beside the image; expected {', '.join(LABELS)} of the same name")
    suffix, content = sample.label
    try:
        text = content.decode().strip()
        if suffix == ".json":
            value = json.loads(text)
            text = str(value[key] if isinstance(value, dict) else value)
    except (ValueError, KeyError) as error:
        raise DataError(f"{where}{suffix}: no label under {key!r} ({error}); --label picks another key") from error
    if not text:
        raise DataError(f"{where}{suffix}: the label is empty")
    return text
