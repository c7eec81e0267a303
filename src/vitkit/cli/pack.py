from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from vitkit.cli.args import DataDirOption
from vitkit.cli.output import JsonOption, console, print_json, progress_bar
from vitkit.errors import UsageError

if TYPE_CHECKING:
    from vitkit.data.shards.writer import PackResult

MAX_SHARD_SIZE = 10**12  # bytes


@dataclass(frozen=True)
class Pack:
    """Pack a data set into a few large files with an index, or unpack such files into class folders."""

    data: Positional[str]
    """A folder of class folders, a CSV, parquet files, an .npz, shards, or a name such as digits or cifar10."""
    out: Positional[str]
    """The folder to create."""
    to: Annotated[Literal["tar", "parquet", "folder"], arg(aliases=["--format"])] = "tar"
    """The format to write: tar (WebDataset), parquet (Hugging Face), or class folders."""
    shard_size: str = "256MB"
    """The maximum size of a shard, in bytes or with KB, MB, GB, KiB, MiB or GiB."""
    label: str = "label"
    """The column of the class in a CSV or parquet file, or the key in the .json files of a tar."""
    data_dir: DataDirOption = None
    corrupt_limit: float = 0.01
    """The fraction of images that may be corrupt. They are named and left out."""
    json: JsonOption = False

    def run(self) -> int:
        size = parse_shard_size(self.shard_size)
        from vitkit.data.open import open_data
        from vitkit.data.shards.writer import pack, unpack

        limit = self.corrupt_limit
        data = open_data(self.data, label=self.label, data_dir=self.data_dir, val_fraction=0, corrupt_limit=limit)
        with progress_bar("unpacking" if self.to == "folder" else "packing", quiet=self.json) as progress:
            if self.to == "folder":
                result = unpack(data, self.out, corrupt_limit=limit, progress=progress)
            else:
                result = pack(data, self.out, to=self.to, shard_size=size, corrupt_limit=limit, progress=progress)
        self._print(result)
        return 0

    def _print(self, result: "PackResult") -> None:
        if self.json:
            counts = {"images": result.images, "shards": result.shards, "bytes": result.size}
            print_json({"out": str(result.out), **counts, "left_out": [vars(failure) for failure in result.left_out]})
            return
        for failure in result.left_out:
            console(stderr=True).print(f"left out: {failure}", markup=False)
        shards = f" in {result.shards:,} shard{'s' * (result.shards != 1)}" if result.shards else ""
        console().print(f"{result.images:,} images, {result.size / 1e6:,.1f} MB{shards}: {result.out}", markup=False)


def parse_shard_size(text: str) -> int:
    """Return the bytes of a size such as 256MB."""
    from vitkit.plan.units import parse_bytes

    size = int(parse_bytes(text, "--shard-size"))
    if not 0 < size < MAX_SHARD_SIZE:
        raise UsageError(f"--shard-size {text}: expected less than a terabyte, such as 256MB")
    return size
