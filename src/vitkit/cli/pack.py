from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from vitkit.cli.output import console, print_json, progress_bar
from vitkit.errors import UsageError

if TYPE_CHECKING:
    from vitkit.data.shards.writer import PackResult

LARGEST = 10**12  # bytes of a shard


@dataclass(frozen=True)
class Pack:
    """Turn a data set into a few large files with an index, or such files back into class folders."""

    data: Positional[str]
    """A folder of class folders, a CSV, parquet files, an .npz, a name (digits, cifar10, …), or shards."""
    out: Positional[str]
    """The folder to make."""
    to: Annotated[Literal["tar", "parquet", "folder"], arg(aliases=["--format"])] = "tar"
    """tar (WebDataset), parquet (Hugging Face), or folder: back into class folders."""
    shard_size: str = "256MB"
    """How large a shard may become: bytes, or with KB, MB, GB, KiB, MiB or GiB."""
    label: str = "label"
    """The column of the class, in CSV and parquet; the key in the .json files of a tar."""
    data_dir: Path | None = None
    """Where named data sets are, or go; else $VITKIT_DATA."""
    corrupt_limit: float = 0.01
    """The share of images that may be corrupt: they are named and left out."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        size = as_bytes(self.shard_size)
        from vitkit.data.open import open_data
        from vitkit.data.shards.writer import pack, unpack

        opening = {"label": self.label, "data_dir": self.data_dir, "corrupt_limit": self.corrupt_limit}
        data = open_data(self.data, val_fraction=0, **opening)  # type: ignore[arg-type]  # a mixed dictionary
        with progress_bar("unpacking" if self.to == "folder" else "packing", quiet=self.json) as progress:
            if self.to == "folder":
                packed = unpack(data, self.out, corrupt_limit=self.corrupt_limit, progress=progress)
            else:
                packed = pack(
                    data, self.out, to=self.to, shard_size=size, corrupt_limit=self.corrupt_limit, progress=progress
                )
        self._show(packed)
        return 0

    def _show(self, packed: "PackResult") -> None:
        if self.json:
            left_out = [vars(failure) for failure in packed.left_out]
            numbers = {"images": packed.images, "shards": packed.shards, "bytes": packed.size}
            print_json({"out": str(packed.out), **numbers, "left_out": left_out})
            return
        for failure in packed.left_out:
            console(stderr=True).print(f"left out: {failure}", markup=False)
        shards = f" in {packed.shards:,} shard{'s' * (packed.shards != 1)}" if packed.shards else ""
        console().print(f"{packed.images:,} images, {packed.size / 1e6:,.1f} MB{shards}: {packed.out}", markup=False)


def as_bytes(text: str) -> int:
    """256MB → 256,000,000."""
    from vitkit.plan.units import parse_bytes

    size = int(parse_bytes(text, "--shard-size"))
    if not 0 < size < LARGEST:
        raise UsageError(f"--shard-size {text}: expected less than a terabyte, such as 256MB")
    return size
