"""The data set and the model of a run, opened again for its report."""

from dataclasses import dataclass, replace
from functools import cached_property

from vitkit.data.dataset import Dataset, ReadFailure, Split
from vitkit.data.loader import pixels_of
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.errors import VitkitError
from vitkit.model import ViT, create_model
from vitkit.model.config import Pair
from vitkit.report.run_record import RunRecord
from vitkit.training.init_from import load_init
from vitkit.training.setup import open_dataset, suggest_preprocess
from vitkit.weights.load import load_model
from vitkit.weights.model_dir import CONFIG, read_config_json


@dataclass(frozen=True)
class RunAssets:
    run: RunRecord
    model: ViT | None  # None: the run is not finished
    data: Dataset | None  # without unreadable images; None: it could not be opened
    data_error: str = ""  # why it could not be opened
    unreadable: tuple[tuple[str, ReadFailure], ...] = ()  # (split, failure)

    @cached_property
    def preprocess(self) -> Preprocess:
        """The preprocessing of the run: saved with its model, or derived from recipe and data as at its start."""
        if self.model is not None and self.model.info.preprocess is not None:
            return self.model.info.preprocess
        assert self.data is not None
        return suggest_preprocess(self.data.splits["train"], self.run.recipe, load_init(self.run.recipe))

    @property
    def patch_size(self) -> Pair:
        model = self.model or load_init(self.run.recipe)
        if model is not None:
            return model.config.patch_size
        started = self.run.folder / "checkpoints" / CONFIG
        if started.is_file():
            return read_config_json(started).config.patch_size
        return create_model(self.run.recipe.model, device="meta", **self.run.recipe.config).config.patch_size

    @property
    def held_out(self) -> Split | None:
        return None if self.data is None else self.data.splits.get(self.run.split)


def open_assets(run: RunRecord) -> RunAssets:
    model = load_model(run.folder) if run.result else None
    try:
        return _without_unreadable(RunAssets(run, model, open_dataset(run.recipe)))
    except VitkitError as error:
        return RunAssets(run, model, None, str(error))


def _without_unreadable(assets: RunAssets) -> RunAssets:
    """Skip the images that training skipped. No image is decoded if the recorded counts show that none was skipped."""
    assert assets.data is not None
    counts = dict(assets.model.info.data.get("images", {})) if assets.model else {}
    splits, unreadable, known = {}, [], ReadabilityCache(assets.run.recipe.data, assets.preprocess.range)
    for name, split in assets.data.splits.items():
        if len(split) != counts.get(name) and pixels_of(split) is None:
            split, failures = filter_readable(split, assets.preprocess.check_decodable, 1.0, None, known)
            unreadable += [(name, failure) for failure in failures]
        splits[name] = split
    return replace(assets, data=replace(assets.data, splits=splits), unreadable=tuple(unreadable))
