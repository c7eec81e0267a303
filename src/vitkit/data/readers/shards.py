"""Open shards, local or in an object store: a folder of `vitkit pack`, WebDataset tars, parquet files."""

import dataclasses
import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from vitkit.data.dataset import Dataset, RawImage, Split
from vitkit.data.decode_pipeline import CORRUPT_LIMIT, CORRUPT_LIMIT_OPTIONS, read_split
from vitkit.data.progress_bar import progress_bar
from vitkit.data.readers.columns import parse_labels, split_of_file
from vitkit.data.readers.folder import subfolders
from vitkit.data.readers.parquet import stream_parquet
from vitkit.data.shards.index import IMAGE_COLUMN, INDEX, PackedStrings, SampleTable, Shard, has_index, read_index
from vitkit.data.shards.reader import ShardImages
from vitkit.data.shards.storage import FileStat, find_files, is_pattern, is_remote, join, stat_files
from vitkit.data.shards.tar_index import TarIndex, index_tar
from vitkit.data.split import RawDataset, build_dataset, from_arrays
from vitkit.errors import CorruptImageError, DataError
from vitkit.runtime.threads import threaded_map

SUFFIXES = (".tar", ".parquet")
MEMORY_LIMIT = 4 * 2**30  # bytes of packed arrays that are decoded into memory


def is_shards(spec: str) -> bool:
    """Return True if a path, pattern or address names shards."""
    if is_remote(spec):
        return True
    path = Path(spec).expanduser()
    if path.is_dir():
        indexed = (path / INDEX).is_file() and any(path.glob("*.parquet"))
        return indexed or (any(path.glob("*.tar")) and not subfolders(path))
    return path.suffix == ".tar" if path.exists() else is_pattern(spec) and (path.suffix == ".tar" or "{" in spec)


def open_shards(spec: str, label: str, corrupt_limit: float = CORRUPT_LIMIT) -> Dataset:
    """Open shards without reading the images. `corrupt_limit` also limits the images in missing or broken shards."""
    spec = spec if is_remote(spec) else str(Path(spec).expanduser())
    if not spec.endswith(SUFFIXES):
        if has_index(spec):
            return _open_packed(spec, None, corrupt_limit)
        paths = [path for suffix in SUFFIXES for path in find_files(join(spec, f"*{suffix}"))]
    else:
        paths = find_files(spec)
        folder = spec.rpartition("/")[0] or "."
        if paths and not is_pattern(folder) and has_index(folder):
            return _open_packed(folder, paths, corrupt_limit)
    if not paths:
        raise DataError(f"{spec}: no shards found; expected .tar or .parquet files, or the folder of `vitkit pack`")
    suffixes = {Path(path).suffix for path in paths}
    if len(suffixes) > 1:
        raise DataError(f"{spec}: both .tar and .parquet files; name one kind, such as '{join(spec, '*.tar')}'")
    name = re.split(r"[.*?\[{]", Path(spec.rstrip("/")).name)[0].rstrip("-_") or "shards"
    if suffixes == {".tar"}:
        return build_dataset(_index_tars(name, paths, label, corrupt_limit))
    return stream_parquet(name, paths, label, corrupt_limit)


# ── Packed by vitkit


def _open_packed(folder: str, selected: Sequence[str] | None, corrupt_limit: float) -> Dataset:
    """Open a packed folder, or only the selected shards of it."""
    index = read_index(folder)
    column = IMAGE_COLUMN if index.head["format"] == "parquet" else ""
    splits = {
        name: Split(ShardImages(index.shards, samples, column, packed=True), labels)
        for name, (labels, samples) in index.splits.items()
    }
    files = {Path(path).name for path in (selected if selected is not None else [s.path for s in index.shards])}
    wanted = np.array([Path(shard.path).name in files for shard in index.shards])
    if not wanted.all():
        kept = {name: np.flatnonzero(wanted[samples.shard]) for name, (_, samples) in index.splits.items()}
        splits = {n: s if len(kept[n]) == len(s) else s.subset(kept[n]) for n, s in splits.items() if len(kept[n])}
    if not splits:
        raise DataError(f"{folder}: its index has none of the shards that were named, such as {min(files)}")
    notes = [_damage(s) for s, use in zip(index.shards, wanted, strict=True) if use and not s.has_packed_size]
    head = index.head
    data = Dataset(head["name"], head["class_names"], splits, notes, head["named"])
    shape = tuple(head["arrays"] or ())
    if shape and sum(map(len, splits.values())) * int(np.prod(shape)) <= MEMORY_LIMIT:
        return _to_arrays(data, shape, corrupt_limit)
    return data


def _damage(shard: Shard) -> str:
    if shard.stat is None:
        return f"{shard.path} is missing, with {shard.samples:,} images"
    return f"{shard.path} has {shard.stat.size:,} bytes but was packed with {shard.size:,}: images may be missing"


def _to_arrays(data: Dataset, shape: tuple[int, ...], corrupt_limit: float) -> Dataset:
    """Return a data set of arrays, decoded from images that were packed from arrays. It trains as the original did."""

    def to_pixels(image: RawImage, name: str) -> np.ndarray:
        try:
            return np.asarray(Image.open(io.BytesIO(bytes(image)), formats=["PNG"])).reshape(shape)
        except (OSError, ValueError, SyntaxError) as error:
            raise CorruptImageError(name, f"cannot be unpacked ({error})") from error

    arrays, notes = {}, list(data.notes)
    for name, split in data.splits.items():
        with progress_bar(f"unpacking {name}") as progress:
            images, readable, failures = read_split(split, to_pixels, corrupt_limit, progress)
        if not images:
            raise DataError(f"{data.name}: no image of its {name} split can be read; the first: {failures[0]}")
        arrays[name] = np.stack(images), readable.labels
        notes += [f"left out: {failure}" for failure in failures]
    unpacked = from_arrays(data.name, arrays, data.class_names, notes)
    return dataclasses.replace(unpacked, has_class_names=data.has_class_names)


# ── WebDataset tars


def _index_tars(name: str, paths: Sequence[str], label: str, corrupt_limit: float) -> RawDataset:
    stats = [stat for stat in stat_files(paths) if stat is not None]
    tars: list[TarIndex] = []
    with progress_bar("indexing the shards (once)") as progress:
        for tar in threaded_map(lambda stat: index_tar(stat, label), stats):
            tars.append(tar)
            progress(len(tars), len(stats))
    notes = _check_complete(paths, stats, tars, corrupt_limit)
    counts = [len(tar.offset) for tar in tars]
    shards = [Shard(stat.path, count, stat.size, stat=stat) for stat, count in zip(stats, counts, strict=True)]
    offset, size, crc, hashes = (
        np.concatenate([getattr(tar, column) for tar in tars]) for column in ("offset", "size", "crc", "hashes")
    )
    names = PackedStrings.of([name for tar in tars for name in tar.names])
    samples = SampleTable(np.repeat(np.arange(len(tars), dtype=np.int32), counts), offset, size, names, crc, hashes)
    labels = parse_labels([text for tar in tars for text in tar.labels])
    splits = [split for s, n in zip(stats, counts, strict=True) for split in [split_of_file(Path(s.path))] * n]
    return RawDataset(name, ShardImages(shards, samples), labels, splits, notes=notes)


def _check_complete(
    paths: Sequence[str], stats: Sequence[FileStat], tars: Sequence[TarIndex], corrupt_limit: float
) -> list[str]:
    """Return a note for every missing or broken shard. Raise if they have more than `corrupt_limit` of the images.

    The number of images in these shards is estimated by the mean of the complete shards.
    """
    present = {stat.path for stat in stats}
    missing = [path for path in paths if path not in present]
    broken = {stat.path: tar for stat, tar in zip(stats, tars, strict=True) if tar.broken}
    notes = [f"{path} is missing" for path in missing]
    notes += [f"{path} {tar.broken}: the rest of it is left out" for path, tar in broken.items()]
    complete = [len(tar.offset) for tar in tars if not tar.broken]
    if notes and not complete:
        raise DataError(f"none of the {len(paths):,} shards is complete; the first: {notes[0]}")
    mean = float(np.mean(complete)) if complete else 0.0
    lost = mean * len(missing) + sum(max(mean - len(tar.offset), 1.0) for tar in broken.values())
    total = sum(len(tar.offset) for tar in tars) + lost
    if lost > corrupt_limit * total:
        raise DataError(
            f"about {lost:,.0f} of {total:,.0f} images are in missing or broken shards, more than the limit of "
            f"{corrupt_limit:.2%}; the first: {notes[0]} (copy it again; to continue without: {CORRUPT_LIMIT_OPTIONS})"
        )
    return notes
