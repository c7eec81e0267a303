"""How shards are written: tars as WebDataset has them, parquet as Hugging Face's `datasets` has it.

A shard gets its name once it is whole, and its SHA-256 is computed on the way to the disk.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from vitkit.data.dataset import Dataset
from vitkit.data.shards.index import IMAGE_COLUMN
from vitkit.data.shards.reader import Shard
from vitkit.errors import MissingExtraError

ROW_GROUP = 2**23  # bytes: what has to be read, and held, for the sake of one image
BLOCK = tarfile.BLOCKSIZE


class Writer(Protocol):
    shards: list[Shard]

    def add(self, content: bytes, ending: str, name: str, label: int) -> tuple[int, int]:
        """Which shard it went into, and where in it: byte or row."""
        ...

    def close(self) -> None: ...


class _File(io.RawIOBase):
    """A file under a temporary name that hashes what is written to it."""

    def __init__(self, path: Path) -> None:
        self.path, self.temporary = path, path.with_name(f".{path.name}.tmp")
        self.raw, self.digest, self.length = open(self.temporary, "wb"), hashlib.sha256(), 0  # noqa: SIM115  # until `finish`

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


class Tars:
    """NUMBER.jpg and NUMBER.cls for every image, the number counting through the split."""

    def __init__(self, folder: Path, split: str, size: int, first: int, data: Dataset) -> None:
        self.folder, self.split, self.size, self.first = folder, split, size, first
        self.shards: list[Shard] = []
        self.file: _File | None = None
        self.tar: tarfile.TarFile | None = None
        self.count = self.total = 0

    def add(self, content: bytes, ending: str, name: str, label: int) -> tuple[int, int]:
        if self.tar and _tar_size(self.tar.offset, len(content)) > self.size:
            self.close()
        if self.tar is None:
            self.file = _File(self.folder / f"{self.split}-{len(self.shards):05}.tar")
            self.tar = tarfile.TarFile(fileobj=self.file, mode="w", format=tarfile.USTAR_FORMAT)
        place = self.tar.offset + BLOCK
        self._put(f"{self.total:09}.{ending}", content)
        self._put(f"{self.total:09}.cls", str(label).encode())
        self.count, self.total = self.count + 1, self.total + 1
        return self.first + len(self.shards), place

    def _put(self, name: str, content: bytes) -> None:
        """No time, no owner: equal images make equal shards."""
        assert self.tar is not None
        member = tarfile.TarInfo(name)
        member.size = len(content)
        self.tar.addfile(member, io.BytesIO(content))

    def close(self) -> None:
        if self.tar is None or self.file is None:
            return
        self.tar.close()
        self.shards.append(self.file.finish(self.count))
        self.tar, self.file, self.count = None, None, 0


def _tar_size(offset: int, content: int) -> int:
    """After one more image: two headers, padding, the label, the end of the archive, all rounded up to a record."""
    needed = offset + 2 * BLOCK + -(-content // BLOCK) * BLOCK + BLOCK + 2 * BLOCK
    return -(-needed // tarfile.RECORDSIZE) * tarfile.RECORDSIZE


class Parquets:
    """Columns `image` {bytes, path} and `label`, with the class names where `datasets` looks for them."""

    def __init__(self, folder: Path, split: str, size: int, first: int, data: Dataset) -> None:
        try:
            import pyarrow
        except ImportError as error:
            raise MissingExtraError("writing parquet files", "pyarrow", "data") from error
        self.folder, self.split, self.size, self.first = folder, split, size, first
        self.shards: list[Shard] = []
        label = (
            {"names": list(data.class_names), "_type": "ClassLabel"}
            if data.named
            else {"dtype": "int64", "_type": "Value"}
        )
        features = {IMAGE_COLUMN: {"_type": "Image"}, "label": label}
        image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        self.schema = pyarrow.schema([(IMAGE_COLUMN, image), ("label", pyarrow.int64())], metadata)
        self.file: _File | None = None
        self.writer: Any = None
        self.waiting: list[tuple[bytes, str, int]] = []
        self.held = 0  # bytes that wait
        self.groups: list[int] = []

    def add(self, content: bytes, ending: str, name: str, label: int) -> tuple[int, int]:
        if self.waiting and self.held + len(content) > min(ROW_GROUP, self.size):
            self._write_group()
        if self.file and self.file.length + self.held + len(content) > self.size:
            self.close()
        if self.file is None:
            from pyarrow import parquet

            self.file = _File(self.folder / f"{self.split}-{len(self.shards):05}.parquet")
            # Images are compressed already, and no two are alike.
            self.writer = parquet.ParquetWriter(self.file, self.schema, compression="none", use_dictionary=False)
        row = sum(self.groups) + len(self.waiting)
        self.waiting.append((content, name.encode(errors="replace").decode(), label))
        self.held += len(content)
        return self.first + len(self.shards), row

    def _write_group(self) -> None:
        import pyarrow

        columns = {
            IMAGE_COLUMN: [{"bytes": content, "path": name} for content, name, _ in self.waiting],
            "label": [label for _, _, label in self.waiting],
        }
        self.writer.write_table(pyarrow.table(columns, schema=self.schema), row_group_size=len(self.waiting))
        self.groups.append(len(self.waiting))
        self.waiting, self.held = [], 0

    def close(self) -> None:
        if self.file is None:
            return
        if self.waiting:
            self._write_group()
        self.writer.close()
        self.shards.append(self.file.finish(sum(self.groups), tuple(self.groups)))
        self.file, self.writer, self.groups = None, None, []


WRITERS: dict[str, Callable[[Path, str, int, int, Dataset], Writer]] = {"tar": Tars, "parquet": Parquets}
