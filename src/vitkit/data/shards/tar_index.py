"""Index WebDataset tars that vitkit did not pack: read each one once, and cache what was found.

A WebDataset tar holds, for every sample, files that share a name up to the first dot: an image, and its class in a
`.cls` file (a number or a name), a `.json` with the label under its key, or a `.txt`.
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

from vitkit.data.decode import SUFFIXES
from vitkit.data.fingerprint import HASH_BYTES, hash_content
from vitkit.data.shards.index import PackedStrings
from vitkit.data.shards.storage import FileStat, open_file, retry_remote
from vitkit.errors import DataError
from vitkit.runtime.cache_dir import cache_folder, write_cache_file

LABELS = (".cls", ".json", ".txt")  # in the order of preference
MAX_LABEL = 2**20  # bytes: larger files are not labels
VERSION = 2  # of the cached files: other versions are scanned again


@dataclass(frozen=True)
class TarIndex:
    """The positions and labels of the images in one tar."""

    offset: np.ndarray
    size: np.ndarray
    crc: np.ndarray
    hashes: np.ndarray
    names: PackedStrings
    labels: list[str]
    broken: str = ""  # why the tar is incomplete


def index_tar(stat: FileStat, label: str) -> TarIndex:
    """Return the index of a tar from the cache, or scan the tar and cache it. `label`: the key in .json files."""
    key = hashlib.sha256(f"{VERSION}\n{label}\n{stat.state}\n{stat.size}".encode()).hexdigest()[:32]
    path = cache_folder() / "shards" / f"{key}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            c = {name: file[name] for name in file.files}
        names, labels = (PackedStrings(c[n].tobytes(), c[f"{n}_ends"]) for n in ("names", "labels"))
        return TarIndex(c["place"], c["size"], c["crc"], c["stamps"], names, list(labels), str(c["broken"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass
    index = retry_remote(lambda: _scan(stat, label), stat.path)
    texts = {"names": index.names, "labels": PackedStrings.of(index.labels)}
    columns = {n: np.frombuffer(t.text, np.uint8) for n, t in texts.items()}
    columns |= {f"{n}_ends": t.ends for n, t in texts.items()}
    columns |= {"place": index.offset, "size": index.size, "crc": index.crc, "stamps": index.hashes}
    file = io.BytesIO()
    np.savez(file, broken=np.array(index.broken), **columns)  # type: ignore[arg-type]  # as in index.py
    write_cache_file(path, file.getvalue())
    return index


def _scan(stat: FileStat, label: str) -> TarIndex:
    rows: list[tuple[int, int, int, bytes, str, str]] = []
    broken = ""
    try:
        for sample in _samples(stat.path):
            rows.append(_row(sample, stat.path, label))
    except _BrokenTarError as error:
        broken = f"{error} after {len(rows):,} images"
    offset, size, crc, hashes, names, labels = zip(*rows, strict=True) if rows else ((),) * 6
    return TarIndex(
        np.array(offset, np.int64),
        np.array(size, np.int64),
        np.array(crc, np.uint32),
        np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES),
        PackedStrings.of(names),
        list(labels),
        broken,
    )


class _BrokenTarError(Exception):
    pass


@dataclass
class _Sample:
    key: str
    image: tuple[int, bytes, str] | None = None  # (first byte, content, suffix)
    label: tuple[str, bytes] | None = None  # (suffix, content)


def _samples(path: str) -> Iterator[_Sample]:
    """Yield groups of consecutive files that share a key. The last sample of a truncated tar is left out."""
    sample = None
    with open_file(path) as raw:
        try:
            with tarfile.open(fileobj=raw, mode="r:") as tar:
                while (member := tar.next()) is not None:
                    if not member.isfile() or PurePosixPath(member.name).name.startswith("."):
                        continue
                    key, suffix = _split_key(member.name)
                    if sample is None or sample.key != key:
                        if sample is not None:
                            yield sample
                        sample = _Sample(key)
                    _add_file(sample, suffix, member, tar)
                _check_end(raw, tar)
        except (tarfile.ReadError, EOFError) as error:
            raise _BrokenTarError(f"is truncated ({error})") from error
    if sample is not None:
        yield sample


def _add_file(sample: _Sample, suffix: str, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
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
    """Raise unless the tar ends with blocks of zeros; `tarfile` accepts any end between two files."""
    raw.seek(tar.offset)
    if raw.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("no end of archive")


def _split_key(name: str) -> tuple[str, str]:
    """Return the path up to the first dot of the file name, and the rest: WebDataset's rule."""
    folder, _, file = name.rpartition("/")
    stem, _, suffix = file.partition(".")
    return f"{folder}/{stem}" if folder else stem, suffix.lower()


def _row(sample: _Sample, path: str, label: str) -> tuple[int, int, int, bytes, str, str]:
    where = f"{path}/{sample.key}"
    if sample.image is None:
        raise DataError(f"{where}: no image; expected one of {', '.join(sorted(SUFFIXES))}")
    offset, content, suffix = sample.image
    name = f"{sample.key}.{suffix}"
    return offset, len(content), zlib.crc32(content), hash_content(content), name, _label(sample, where, label)


def _label(sample: _Sample, where: str, key: str) -> str:
    if sample.label is None:
        raise DataError(f"{where}: the image has no label; expected {', '.join(LABELS)} of the same name")
    suffix, content = sample.label
    try:
        text = content.decode().strip()
        if suffix == ".json":
            value = json.loads(text)
            text = str(value[key] if isinstance(value, dict) else value)
    except (ValueError, KeyError) as error:
        raise DataError(
            f"{where}{suffix}: no label under {key!r} ({error}); choose another key with --label"
        ) from error
    if not text:
        raise DataError(f"{where}{suffix}: the label is empty")
    return text
