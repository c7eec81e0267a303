"""Pack a data set into shards with an index, and unpack it into class folders.

Tars are written as WebDataset has them, parquet as Hugging Face's `datasets` has it. Every image is decoded once while
packing, so each image in a shard is readable. Train images are written in shuffled order, so that any few shards
contain all classes; val and test keep their order, in which they are read. Equal data sets give equal bytes.
"""

import contextlib
import hashlib
import io
import json
import os
import tarfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from PIL import Image

from vitkit.data.dataset import ArrayImages, Dataset, RawImage, ReadFailure, Split, unwrap_subsets
from vitkit.data.decode import SUFFIXES, decode, read_header
from vitkit.data.decode_pipeline import CORRUPT_LIMIT, CorruptionBudget, Progress, read_images
from vitkit.data.fingerprint import HASH_BYTES, hash_content
from vitkit.data.rng import permutation
from vitkit.data.shards.index import IMAGE_COLUMN, INDEX, PackedStrings, SampleTable, Shard, write_index
from vitkit.errors import CorruptImageError, DataError, UnknownNameError, UsageError, WorkError
from vitkit.runtime.packages import require_package

SHARD_SIZE = 256 * 10**6
ROW_GROUP = 2**23  # bytes that are read, and held, to get at one image of a parquet file
BLOCK = tarfile.BLOCKSIZE
SUFFIX_OF = {"JPEG": "jpg", "MPO": "jpg", "PNG": "png", "WEBP": "webp", "BMP": "bmp", "GIF": "gif", "TIFF": "tif"}
PNG_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class PackResult:
    out: Path
    images: int
    size: int  # bytes
    shards: int
    left_out: tuple[ReadFailure, ...]


def pack(
    data: Dataset,
    out: str | Path,
    *,
    to: str = "tar",
    shard_size: int = SHARD_SIZE,
    corrupt_limit: float = CORRUPT_LIMIT,
    progress: Progress | None = None,
) -> PackResult:
    """Write shards of at most `shard_size` bytes, and their index, into the new folder `out`."""
    if to not in WRITERS:
        raise UnknownNameError("format of shards", to, WRITERS)
    folder, total = _new_folder(out), sum(map(len, data.splits.values()))
    budget, shards = CorruptionBudget(total, corrupt_limit), list[tuple[str, Shard]]()
    packed, done = dict[str, tuple[np.ndarray, SampleTable]](), 0
    with _removed_on_error(folder):
        for name, split in data.splits.items():
            writer = WRITERS[to](folder, name, shard_size, len(shards), data)
            packed[name] = _pack_split(split, name == "train", writer, budget, _from(progress, done, total))
            done += len(split)
            shards += [(name, shard) for shard in writer.shards]
        images = sum(len(labels) for labels, _ in packed.values())
        if not images:
            raise DataError(f"{data.name}: none of its images can be packed")
        head = {
            "name": data.name,
            "format": to,
            "class_names": list(data.class_names),
            "named": data.has_class_names,
            "arrays": _array_shape(data),
            "left_out": [vars(failure) for failure in budget.failures],
        }
        write_index(folder, head, shards, {name: part for name, part in packed.items() if len(part[0])})
    return PackResult(folder, images, sum(s.size for _, s in shards), len(shards), tuple(budget.failures))


def unpack(
    data: Dataset, out: str | Path, *, corrupt_limit: float = CORRUPT_LIMIT, progress: Progress | None = None
) -> PackResult:
    """Write the image files into class folders, below folders of splits if there are several."""
    folder, total = _new_folder(out), sum(map(len, data.splits.values()))
    budget, written = CorruptionBudget(total, corrupt_limit), set[Path]()
    size = 0
    for name, split in data.splits.items():
        root = folder / name if len(data.splits) > 1 or name != "train" else folder
        for label, image in zip(split.labels, read_images(split.images, np.arange(len(split)), _encode), strict=True):
            if isinstance(image, ReadFailure):
                budget.add(image)
                continue
            path = _unused_path(root / _folder_name(data.class_names[label]), image, written)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image.content)
            size += len(image.content)
            if progress:
                progress(len(written), total)
    return PackResult(folder, len(written), size, 0, tuple(budget.failures))


def _pack_split(
    split: Split, shuffle: bool, writer: "_ShardWriter", budget: CorruptionBudget, progress: Progress
) -> tuple[np.ndarray, SampleTable]:
    count = len(split)
    readable, names = np.zeros(count, bool), [""] * count
    shard, offset, size = (np.zeros(count, np.int64) for _ in range(3))
    crc, hashes = np.zeros(count, np.uint32), np.zeros((count, HASH_BYTES), np.uint8)
    order = permutation(0, 0, count) if shuffle else np.arange(count)
    stream = read_images(split.images, order, _encode)
    for done, (index, image) in enumerate(zip(order.tolist(), stream, strict=True), 1):
        progress(done, count)
        if isinstance(image, ReadFailure):
            budget.add(image)
            continue
        readable[index], names[index] = True, image.name
        shard[index], offset[index] = writer.add(image, int(split.labels[index]))
        size[index], crc[index] = len(image.content), zlib.crc32(image.content)
        hashes[index] = np.frombuffer(image.hash, np.uint8)
    writer.close()
    samples = SampleTable(shard.astype(np.int32), offset, size, PackedStrings.of(names), crc, hashes)
    return split.labels[readable], samples.take(np.flatnonzero(readable))


def _from(progress: Progress | None, before: int, total: int) -> Progress:
    return lambda done, count: progress(before + done, total) if progress else None


def _array_shape(data: Dataset) -> list[int] | None:
    """Return the shape of an image if all images are arrays of one shape."""
    sources = [unwrap_subsets(split.images)[0] for split in data.splits.values()]
    shapes = {s.pixels.shape[1:] if isinstance(s, ArrayImages) else None for s in sources}
    shape = shapes.pop()
    return list(shape) if shape is not None and not shapes else None


# ── Images as files


@dataclass(frozen=True)
class _ImageFile:
    content: bytes
    suffix: str
    hash: bytes  # of the content before it was encoded
    name: str  # CLASS/FILE


def _encode(image: RawImage, name: str) -> _ImageFile:
    """Return the file of an image; arrays become lossless PNGs. Raise `CorruptImageError` if it cannot be decoded."""
    short = "/".join(PurePath(name).parts[-2:])
    if isinstance(image, np.ndarray):
        return _ImageFile(_encode_png(image, name), "png", hash_content(image), short)
    header = read_header(image, name)
    decode(image, name=name, min_size=(1, 1))  # a JPEG at 1/8: every byte is read, few pixels are computed
    return _ImageFile(image, SUFFIX_OF[header.format or ""], hash_content(image), short)


def _encode_png(pixels: np.ndarray, name: str) -> bytes:
    if pixels.ndim == 3 and pixels.shape[2] not in PNG_CHANNELS:
        raise CorruptImageError(name, f"has {pixels.shape[2]} channels, which no image file supports: keep it as .npz")
    file = io.BytesIO()
    flat = pixels[..., 0] if pixels.shape[2:] == (1,) else pixels
    Image.fromarray(np.ascontiguousarray(flat)).save(file, "PNG", compress_level=1)
    return file.getvalue()


# ── Shard files


class _HashedFile(io.RawIOBase):
    """A file that is hashed while it is written, and gets its name when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path, self.temporary = path, path.with_name(f".{path.name}.tmp")
        self.raw = open(self.temporary, "wb")  # noqa: SIM115  # closed by `finish`
        self.digest, self.length = hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        self.digest.update(content)
        self.length += len(content)
        return self.raw.write(content)

    def tell(self) -> int:
        return self.length

    def finish(self, samples: int, groups: tuple[int, ...] = ()) -> Shard:
        self.raw.flush()
        os.fsync(self.raw.fileno())
        self.raw.close()
        os.replace(self.temporary, self.path)
        return Shard(self.path.name, samples, self.length, self.digest.hexdigest(), groups)


class _ShardWriter(ABC):
    """Writes the images of one split into files of at most `size` bytes. Shards are counted from `first`."""

    suffix: str

    def __init__(self, folder: Path, split: str, size: int, first: int, data: Dataset) -> None:
        self.folder, self.split, self.size, self.first = folder, split, size, first
        self.shards: list[Shard] = []
        self.file: _HashedFile | None = None

    @abstractmethod
    def add(self, image: _ImageFile, label: int) -> tuple[int, int]:
        """Write an image. Return the number of its shard, and its first byte or its row in the shard."""

    @abstractmethod
    def close(self) -> None: ...

    def _new_file(self) -> _HashedFile:
        self.file = _HashedFile(self.folder / f"{self.split}-{len(self.shards):05}.{self.suffix}")
        return self.file


class _TarWriter(_ShardWriter):
    """Writes NUMBER.jpg and NUMBER.cls for every image, numbered within the split."""

    suffix = "tar"

    def __init__(self, folder: Path, split: str, size: int, first: int, data: Dataset) -> None:
        super().__init__(folder, split, size, first, data)
        self.tar: tarfile.TarFile | None = None
        self.count = self.total = 0

    def add(self, image: _ImageFile, label: int) -> tuple[int, int]:
        if self.tar and _tar_size(self.tar.offset, len(image.content)) > self.size:
            self.close()
        if self.tar is None:
            self.tar = tarfile.TarFile(fileobj=self._new_file(), mode="w", format=tarfile.USTAR_FORMAT)
        offset = self.tar.offset + BLOCK
        for suffix, content in ((image.suffix, image.content), ("cls", str(label).encode())):
            member = tarfile.TarInfo(f"{self.total:09}.{suffix}")  # no time, no owner: equal images make equal shards
            member.size = len(content)
            self.tar.addfile(member, io.BytesIO(content))
        self.count, self.total = self.count + 1, self.total + 1
        return self.first + len(self.shards), offset

    def close(self) -> None:
        if self.tar is None or self.file is None:
            return
        self.tar.close()
        self.shards.append(self.file.finish(self.count))
        self.tar, self.file, self.count = None, None, 0


def _tar_size(offset: int, content: int) -> int:
    """Return the size of a tar after one more image: two headers, padding, label and end, rounded up to a record."""
    needed = offset + 2 * BLOCK + -(-content // BLOCK) * BLOCK + BLOCK + 2 * BLOCK
    return -(-needed // tarfile.RECORDSIZE) * tarfile.RECORDSIZE


class _ParquetWriter(_ShardWriter):
    """Writes columns `image` {bytes, path} and `label`, with the class names in the metadata of `datasets`."""

    suffix = "parquet"

    def __init__(self, folder: Path, split: str, size: int, first: int, data: Dataset) -> None:
        pyarrow = require_package("pyarrow", "writing parquet files", "data")
        super().__init__(folder, split, size, first, data)
        named = {"names": list(data.class_names), "_type": "ClassLabel"}
        label = named if data.has_class_names else {"dtype": "int64", "_type": "Value"}
        features = {IMAGE_COLUMN: {"_type": "Image"}, "label": label}
        image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        self.schema = pyarrow.schema([(IMAGE_COLUMN, image), ("label", pyarrow.int64())], metadata)
        self.writer: Any = None
        self.waiting: list[tuple[dict[str, Any], int]] = []
        self.waiting_bytes = 0
        self.groups: list[int] = []

    def add(self, image: _ImageFile, label: int) -> tuple[int, int]:
        length = len(image.content)
        if self.waiting and self.waiting_bytes + length > min(ROW_GROUP, self.size):
            self._write_group()
        if self.file and self.file.length + self.waiting_bytes + length > self.size:
            self.close()
        if self.file is None:
            from pyarrow import parquet

            # Images are compressed already, and all different.
            self.writer = parquet.ParquetWriter(self._new_file(), self.schema, compression="none", use_dictionary=False)
        row = sum(self.groups) + len(self.waiting)
        self.waiting.append(({"bytes": image.content, "path": image.name.encode(errors="replace").decode()}, label))
        self.waiting_bytes += length
        return self.first + len(self.shards), row

    def _write_group(self) -> None:
        import pyarrow

        images, labels = zip(*self.waiting, strict=True)
        table = pyarrow.table({IMAGE_COLUMN: list(images), "label": list(labels)}, schema=self.schema)
        self.writer.write_table(table, row_group_size=len(labels))
        self.groups.append(len(labels))
        self.waiting, self.waiting_bytes = [], 0

    def close(self) -> None:
        if self.file is None:
            return
        if self.waiting:
            self._write_group()
        self.writer.close()
        self.shards.append(self.file.finish(sum(self.groups), tuple(self.groups)))
        self.file, self.writer, self.groups = None, None, []


WRITERS: dict[str, type[_ShardWriter]] = {"tar": _TarWriter, "parquet": _ParquetWriter}


# ── Folders


def _new_folder(out: str | Path) -> Path:
    folder = Path(out).expanduser()
    if folder.is_file():
        raise UsageError(f"{folder} is a file: choose another folder")
    if folder.exists() and any(folder.iterdir()):
        interrupted = not (folder / INDEX).exists() and any(folder.glob("*.tmp"))
        detail = " (it holds the files of an interrupted `vitkit pack`)" if interrupted else ""
        raise UsageError(f"{folder} is not empty{detail}: remove it, or choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the folder {folder}: {error.strerror}; choose another") from error
    return folder


@contextlib.contextmanager
def _removed_on_error(folder: Path) -> Iterator[None]:
    """Remove the folder's files if packing fails within the context: shards without an index are of no use."""
    try:
        yield
    except BaseException as error:
        for path in folder.iterdir():
            path.unlink()
        if isinstance(error, OSError):
            raise WorkError(f"cannot write into {folder}: {error.strerror}; free space or choose another") from error
        raise


def _folder_name(label: str) -> str:
    """Return a class name as a folder name that cannot lead outside, and is neither hidden nor special."""
    safe = label.replace("/", "_").replace("\\", "_").replace("\0", "_")
    return f"_{safe}" if safe in ("", ".", "..") or safe.startswith((".", "__")) else safe


def _unused_path(folder: Path, image: _ImageFile, written: set[Path]) -> Path:
    """Return a path with the image's own name and a suffix of its format, numbered if the name is taken."""
    own = PurePath(PurePath(image.name).name.replace("\\", "_").lstrip(".") or "image")
    own = own if own.suffix.lower() in SUFFIXES else own.with_name(f"{own.name}.{image.suffix}")
    path, number = folder / own.name, 1
    while path in written:
        number += 1
        path = folder / f"{own.stem}-{number}{own.suffix}"
    written.add(path)
    return path
