"""What a report looks at besides the files of the run: its data, opened again, and its model."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property

from vitkit.data.dataset import Dataset, Split
from vitkit.data.loader import pixels_of
from vitkit.data.preprocess import Preprocess
from vitkit.data.readability import ReadabilityCache, filter_readable
from vitkit.errors import VitkitError
from vitkit.model import ViT, create_model
from vitkit.model.config import Pair
from vitkit.report.run import Run
from vitkit.training.init_from import load_init
from vitkit.training.task import open_dataset, suggest_preprocess
from vitkit.weights.load import load_model


@dataclass(frozen=True)
class Subject:
    run: Run
    model: ViT | None  # None: the run has not come to one
    data: Dataset | None  # without what cannot be read; None: it could not be opened again
    trouble: str = ""  # why not
    left_out: tuple[tuple[str, str, str], ...] = ()  # (split, name, reason)

    @cached_property
    def preprocess(self) -> Preprocess:
        """The run's own: the model brings it, or it follows from recipe and data as it did at the start."""
        if self.model is not None and self.model.info.preprocess is not None:
            return self.model.info.preprocess
        assert self.data is not None
        return suggest_preprocess(self.data.splits["train"], self.run.recipe, load_init(self.run.recipe))

    @property
    def patch(self) -> Pair:
        model = self.model or load_init(self.run.recipe)
        if model is not None:
            return model.config.patch_size
        return create_model(self.run.recipe.model, device="meta", **self.run.recipe.config).config.patch_size

    @property
    def held_out(self) -> Split | None:
        return None if self.data is None else self.data.splits.get(self.run.split)


def open_subject(run: Run) -> Subject:
    model = load_model(run.folder) if run.result else None
    try:
        found = Subject(run, model, open_dataset(run.recipe))
        return _readable(found)
    except VitkitError as error:
        return Subject(run, model, None, str(error))


def _readable(subject: Subject) -> Subject:
    """Leave out what training left out. Where its counts say that it used everything, nothing needs to be looked at."""
    assert subject.data is not None
    counts = dict(subject.model.info.data.get("images", {})) if subject.model else {}
    splits, left_out, known = {}, [], ReadabilityCache(subject.run.recipe.data)
    for name, split in subject.data.splits.items():
        if len(split) != counts.get(name) and pixels_of(split) is None:
            split, bad = filter_readable(split, subject.preprocess.check_decodable, 1.0, None, known)
            left_out += [(name, *each) for each in bad]
        splits[name] = split
    data = dataclasses.replace(subject.data, splits=splits)
    return dataclasses.replace(subject, data=data, left_out=tuple(left_out))
