from dataclasses import dataclass

from tyro.conf import Positional

from vitkit.cli.args import DataDirOption, LabelOption
from vitkit.cli.model_args import open_model
from vitkit.cli.output import JsonOption, console, print_json, progress_bar
from vitkit.cli.output_paths import check_output_file


@dataclass(frozen=True)
class Embed:
    """Write the features of every image: one vector each, the input of the model's classifier."""

    model: Positional[str]
    """A model folder, run folder or checkpoint of another library."""
    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    out: str
    """The file to write: .npz or .parquet."""
    split: str | None = None
    """Only this split: train, val or test. Default: all of them."""
    batch: int = 64
    """Images per batch."""
    label: LabelOption = "label"
    data_dir: DataDirOption = None
    corrupt_limit: float = 0.01
    """The share of images that may be unreadable. They are listed and left out."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.data.open import open_data
        from vitkit.errors import ConfigError, UnknownNameError
        from vitkit.features import cached_features, require_preprocess
        from vitkit.features.table import FeatureTable, table_writer
        from vitkit.runtime.device import select_device

        if self.batch < 1:
            raise ConfigError(f"--batch {self.batch}: must be at least 1")
        write = table_writer(self.out)  # a wrong suffix is an error before the work
        check_output_file(self.out)
        model = open_model(self.model, device=select_device("auto"))
        limit = self.corrupt_limit
        data = open_data(self.data, label=self.label, data_dir=self.data_dir, val_fraction=0.0, corrupt_limit=limit)
        if self.split and self.split not in data.splits:
            raise UnknownNameError(f"split of {data.name}", self.split, data.splits)
        preprocess = require_preprocess(model, self.model)
        features = {}
        for name in [self.split] if self.split else data.splits:
            with progress_bar(f"embedding {name}", quiet=self.json) as progress:
                features[name] = cached_features(
                    model, data.splits[name], preprocess,
                    batch_size=self.batch, progress=progress, corrupt_limit=limit,
                )  # fmt: skip
        table = FeatureTable.from_splits(features, data)
        write(table)
        skipped = [line for found in features.values() for line in found.skipped]
        images, width = table.features.shape
        if self.json:
            print_json({"out": self.out, "images": images, "features": width, "skipped": skipped})
            return 0
        console().print(f"{images:,} images, {width} features each: {self.out}", markup=False)
        for line in skipped:
            console(stderr=True).print(f"left out: {line}", markup=False)
        return 0
