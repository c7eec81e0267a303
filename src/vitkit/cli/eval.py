from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from vitkit.cli.args import parse_image_sizes
from vitkit.cli.eval_data import ALL, drawn_by, open_judged
from vitkit.cli.eval_show import show
from vitkit.cli.eval_write import write
from vitkit.cli.model import open_model
from vitkit.cli.output import console, print_json, progress_bar
from vitkit.cli.output_paths import check_output_dir

if TYPE_CHECKING:
    from vitkit.data.dataset import Dataset, Split
    from vitkit.evaluation import Evaluation, Predictions
    from vitkit.model import ViT


@dataclass(frozen=True)
class Eval:
    """Measure a model on a labelled data set: accuracy with intervals, per class, calibration, mistakes."""

    model: Positional[str]
    """A model folder, a run folder, a foreign checkpoint or hf-hub:owner/name."""
    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    split: str | None = None
    """train, val or test; by default test, else val. Images without splits are all judged, unless it learned them."""
    sizes: tuple[str, ...] = ()
    """Measure at these image sizes as well, such as 160,224,288."""
    temperature: bool = False
    """Fit a temperature and show the calibration with it, on other images than it was fitted on."""
    against: str | None = None
    """Another model folder or run folder: is the first better than it on the same images, or was it luck?"""
    knn: tuple[int, ...] | None = None
    """Judge the features instead: each image by its K nearest in the train split; K is chosen there if not given."""
    class_names: str | None = None
    """A JSON file or one name per line, for weights that bring no class names."""
    preprocess: str | None = None
    """A JSON file of preprocessing settings, for weights that bring none."""
    out: str | None = None
    """A folder to write pictures (confusion, calibration, classes), the numbers and every prediction into."""
    batch: int = 256
    """Images at a time."""
    label: str = "label"
    """The column of the class, in a CSV or parquet file."""
    data_dir: str | None = None
    """Where named data sets lie; $VITKIT_DATA by default."""
    corrupt_limit: float = 0.01
    """The share of images that may be unreadable; they are named and left out."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.evaluation import evaluate_predictions, resolution_sweep
        from vitkit.runtime.device import select_device
        from vitkit.weights.metadata import require_metadata

        folder = check_output_dir(self.out) if self.out else None
        device = select_device("auto")
        model = open_model(self.model, self.class_names, self.preprocess, device)
        if self.knn is not None:
            return self._nearest(model, self.knn, folder)
        names, preprocess = require_metadata(model, self.model)
        sizes = self._pixel_sizes(model)
        other = open_model(self.against, device=device) if self.against else None
        data = open_judged(self.data, [model, other] if other else [model], self.split, **self._opening)
        name, split = self._pick(data, names)
        found = self._predict(model, self.model, data, name)
        evaluation = evaluate_predictions(found)
        answer = {"model": self.model, "data": self.data, "split": name, **evaluation.to_dict()}
        if other:
            answer["against"] = self._compare(found, model, other, data, name)
        if sizes:
            answer["sizes"] = [asdict(r) for r in resolution_sweep(model, split, preprocess, sizes, **self._reading)]
        if self.temperature:
            answer["temperature"] = self._calibrate(found, model, data, name)
        self._tell(evaluation, answer, folder)
        return 0

    def _tell(self, evaluation: "Evaluation", answer: dict[str, Any], folder: Path | None) -> None:
        files = write(folder, evaluation, answer) if folder else {}
        if self.json:
            print_json(answer | ({"files": files} if files else {}))
            return
        show(evaluation, answer)
        for name, path in files.items():
            console().print(f"{name}: {path}", markup=False)

    def _pixel_sizes(self, model: "ViT") -> tuple[int, ...]:
        """Checked before the work."""
        from vitkit.errors import UsageError

        sizes = parse_image_sizes(self.sizes)
        for size in sizes:
            if any(size % side for side in model.config.patch_size):
                patch = "×".join(map(str, model.config.patch_size))
                raise UsageError(f"--sizes {size}: must be a multiple of the patch, {patch} pixels")
        return sizes

    def _calibrate(self, found: "Predictions", model: "ViT", data: "Dataset", split: str) -> dict[str, Any]:
        """With a temperature that was fitted on other images than it is judged by."""
        from vitkit.evaluation import cross_fitted_temperature, evaluate_predictions, fit_temperature

        if split != "val" and "val" in data.splits:
            value, on = fit_temperature(self._predict(model, self.model, data, "val")).temperature, "the val split"
            scaled = found.scaled(value)
        else:
            value, scaled = cross_fitted_temperature(found)
            on = "these images (judged in two halves, each with the temperature of the other)"
        measured = evaluate_predictions(scaled)
        return {"value": value, "fitted_on": on, "ece": measured.ece, "nll": measured.nll}

    def _nearest(self, model: "ViT", given: tuple[int, ...], folder: Path | None) -> int:
        """The classes are those of the data: the model need not know them."""
        from vitkit.data.open import open_data
        from vitkit.errors import UsageError
        from vitkit.evaluation import evaluate_predictions
        from vitkit.features import evaluate_knn, require_preprocess

        if len(given) > 1 or any(k < 1 for k in given) or self.sizes or self.temperature or self.against:
            raise UsageError(
                "--knn takes one number above 0 or none, and no --sizes, --temperature or --against with it"
            )
        data = open_data(self.data, **self._opening, **drawn_by(model))
        name, _ = self._pick(data, data.class_names)
        with progress_bar(f"features for {name}", quiet=self.json) as progress:
            found = evaluate_knn(
                model,
                data,
                name,
                require_preprocess(model, self.model),
                k=sum(given),
                batch_size=min(self.batch, 64),
                progress=progress,
                corrupt_limit=self.corrupt_limit,
            )
        evaluation = evaluate_predictions(found.predictions)
        answer = {"model": self.model, "data": self.data, "split": name, "k": found.k, **evaluation.to_dict()}
        if found.leave_one_out_accuracy is not None:
            answer["left_out_top1"] = found.leave_one_out_accuracy
        self._tell(evaluation, answer, folder)
        if not self.json:
            console().print(f"by the {found.k} nearest of the train split, without training", markup=False)
        return 0

    def _predict(self, model: "ViT", called: str, data: "Dataset", split: str) -> "Predictions":
        """What the model says of the split, with labels in its own numbering."""
        from vitkit.evaluation import predict_split
        from vitkit.weights.metadata import require_metadata

        names, preprocess = require_metadata(model, called)
        _, images = self._pick(data, names, split)
        with progress_bar(f"evaluating {split}", quiet=self.json) as progress:
            return predict_split(model, images, preprocess, names, progress=progress, **self._reading)

    @property
    def _opening(self) -> dict[str, Any]:
        return {"label": self.label, "data_dir": self.data_dir, "corrupt_limit": self.corrupt_limit}

    @property
    def _reading(self) -> dict[str, Any]:
        return {"batch_size": self.batch, "corrupt_limit": self.corrupt_limit}

    def _compare(self, found: "Predictions", model: "ViT", other: "ViT", data: "Dataset", split: str) -> dict[str, Any]:
        from vitkit.evaluation import compare

        assert self.against is not None
        result = compare(self._predict(other, self.against, data, split), found)
        answer = {"model": self.against, **result.to_dict(), "words": result.summary(self.against, self.model)}
        if split == "val" and data.val_was_drawn and drawn_by(model) != drawn_by(other):
            answer["caution"] = f"{self.against} was trained with another validation split: it may know these images"
        return answer

    def _pick(self, data: "Dataset", names: Sequence[str], wanted: str | None = None) -> tuple[str, "Split"]:
        from vitkit.errors import UnknownNameError
        from vitkit.evaluation.label_map import match_labels

        name = wanted or self.split or next(n for n in ("test", "val", ALL, "train") if n in data.splits)
        if name not in data.splits:
            raise UnknownNameError(f"split of {data.name}", name, data.splits)
        return name, match_labels(data, data.splits[name], names)
