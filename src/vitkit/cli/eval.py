import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from vitkit.cli.args import DataDirOption, LabelOption, parse_image_sizes
from vitkit.cli.eval_output import print_evaluation, write_evaluation
from vitkit.cli.model_args import open_model
from vitkit.cli.output import JsonOption, console, print_json, printable, progress_bar
from vitkit.cli.output_paths import check_output_dir
from vitkit.errors import UsageError

if TYPE_CHECKING:
    from vitkit.data.dataset import Dataset, Split
    from vitkit.data.preprocess import Preprocess
    from vitkit.evaluation import Evaluation, Predictions
    from vitkit.model import ViT


@dataclass(frozen=True)
class Eval:
    """Evaluate a model on labelled images: accuracy with intervals, per class, calibration, mistakes."""

    model: Positional[str]
    """A model folder, a run folder, a checkpoint of another library or hf-hub:owner/name."""
    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    split: str | None = None
    """train, val or test (default: test, else val). Without splits, all images are evaluated except those that the model was trained on."""  # noqa: E501  # tyro shows it as one line
    sizes: tuple[str, ...] = ()
    """Also evaluate at these image sizes, such as 160,224,288."""
    temperature: bool = False
    """Fit a temperature and report the calibration with it, on other images than it was fitted on."""
    against: str | None = None
    """Compare with this model folder or run folder on the same images, with a significance test."""
    knn: tuple[int, ...] | None = None
    """Classify by the K nearest training images instead of the model's classifier. K is chosen on the train split if not given."""  # noqa: E501  # tyro shows it as one line
    class_names: str | None = None
    """A JSON file or one name per line, for weights without class names."""
    preprocess: str | None = None
    """A JSON file of preprocessing settings, for weights without them."""
    out: str | None = None
    """Write plots (confusion, calibration, classes), metrics and every prediction to this folder."""
    batch: int = 256
    """Images per batch."""
    label: LabelOption = "label"
    data_dir: DataDirOption = None
    corrupt_limit: float = 0.01
    """The share of images that may be unreadable. They are listed and left out."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.evaluation import evaluate_predictions, resolution_sweep
        from vitkit.evaluation.eval_data import choose_split, open_eval_data
        from vitkit.evaluation.predict import annotate
        from vitkit.runtime.device import select_device

        folder = check_output_dir(self.out) if self.out else None
        device = select_device("auto")
        model = open_model(self.model, self.class_names, self.preprocess, device)
        if self.knn is not None:
            return self._evaluate_knn(model, self.knn, folder)
        sizes = self._image_sizes(model)
        other = open_model(self.against, device=device) if self.against else None
        models = [model, other] if other else [model]
        data = open_eval_data(self.data, models, self.split, **self._open_options)
        if not self.split and "test" not in data.splits:
            for note in data.notes:
                print(f"vitkit: {printable(note)}", file=sys.stderr)
        split = choose_split(data, self.split)
        images, _, preprocess = self._prepare(model, self.model, data, split)
        predictions = self._predict(model, self.model, data, split)
        evaluation = annotate(evaluate_predictions(predictions), models, images, data, split)
        for note in evaluation.notes:
            print(f"vitkit: {note}", file=sys.stderr)
        answer = {"model": self.model, "data": self.data, "split": split, **evaluation.to_dict()}
        if other:
            answer["against"] = self._compare(predictions, model, other, data, split)
        if sizes:
            results = resolution_sweep(model, images, preprocess, sizes, **self._read_options)
            answer["sizes"] = [asdict(result) for result in results]
        if self.temperature:
            answer["temperature"] = self._calibrate(predictions, model, data, split)
        self._report(evaluation, answer, folder)
        return 0

    def _evaluate_knn(self, model: "ViT", k: tuple[int, ...], folder: Path | None) -> int:
        """Evaluate by nearest neighbours. The classes are those of the data, so the model needs none."""
        from vitkit.data.open import open_data
        from vitkit.evaluation import evaluate_predictions
        from vitkit.evaluation.eval_data import choose_split
        from vitkit.features import evaluate_knn, require_preprocess

        if len(k) > 1 or any(number < 1 for number in k) or self.sizes or self.temperature or self.against:
            raise UsageError(
                "--knn takes one number above 0 or none, and no --sizes, --temperature or --against with it"
            )
        data = open_data(self.data, **self._open_options, **model.info.split_settings)
        split = choose_split(data, self.split)
        preprocess = require_preprocess(model, self.model)
        read_options = self._read_options | {"batch_size": min(self.batch, 64)}
        with progress_bar(f"features of {split}", quiet=self.json) as progress:
            result = evaluate_knn(model, data, split, preprocess, k=sum(k), progress=progress, **read_options)
        evaluation = evaluate_predictions(result.predictions)
        answer = {"model": self.model, "data": self.data, "split": split, "k": result.k, **evaluation.to_dict()}
        if result.leave_one_out_accuracy is not None:
            answer["left_out_top1"] = result.leave_one_out_accuracy
        self._report(evaluation, answer, folder)
        if not self.json:
            console().print(f"k-NN with k = {result.k}: neighbours from the train split, no training", markup=False)
        return 0

    def _prepare(
        self, model: "ViT", source: str, data: "Dataset", split: str
    ) -> "tuple[Split, Sequence[str], Preprocess]":
        """Return the images with labels that index the model's classes, the class names, and the preprocessing."""
        from vitkit.evaluation.label_map import find_class_names, match_labels
        from vitkit.weights.metadata import require_metadata

        class_names, preprocess = require_metadata(model, source, find_class_names(model, data))
        return match_labels(data, data.splits[split], class_names), class_names, preprocess

    def _predict(self, model: "ViT", source: str, data: "Dataset", split: str) -> "Predictions":
        from vitkit.evaluation import predict_split

        images, class_names, preprocess = self._prepare(model, source, data, split)
        with progress_bar(f"evaluating {split}", quiet=self.json) as progress:
            return predict_split(model, images, preprocess, class_names, progress=progress, **self._read_options)

    def _compare(
        self, predictions: "Predictions", model: "ViT", other: "ViT", data: "Dataset", split: str
    ) -> dict[str, Any]:
        from vitkit.evaluation import compare

        assert self.against is not None
        result = compare(self._predict(other, self.against, data, split), predictions)
        answer = {"model": self.against, **result.to_dict(), "words": result.summary(self.against, self.model)}
        if split == "val" and data.val_was_drawn and model.info.split_settings != other.info.split_settings:
            answer["caution"] = (
                f"{self.against} was trained with another validation split: it may have been trained on these images"
            )
        return answer

    def _calibrate(self, predictions: "Predictions", model: "ViT", data: "Dataset", split: str) -> dict[str, Any]:
        """Return the calibration with a temperature that was fitted on other images."""
        from vitkit.evaluation import cross_fitted_temperature, evaluate_predictions, fit_temperature

        if split != "val" and "val" in data.splits:
            value = fit_temperature(self._predict(model, self.model, data, "val")).temperature
            scaled, fitted_on = predictions.scaled(value), "the val split"
        else:
            value, scaled = cross_fitted_temperature(predictions)
            fitted_on = "these images (cross-fitted: each half is scaled by the temperature of the other half)"
        result = evaluate_predictions(scaled)
        return {"value": value, "fitted_on": fitted_on, "ece": result.ece, "nll": result.nll}

    def _report(self, evaluation: "Evaluation", answer: dict[str, Any], folder: Path | None) -> None:
        files = write_evaluation(folder, evaluation, answer) if folder else {}
        if self.json:
            print_json(answer | ({"files": files} if files else {}))
            return
        print_evaluation(evaluation, answer)
        for name, path in files.items():
            console().print(f"{name}: {path}", markup=False)

    def _image_sizes(self, model: "ViT") -> tuple[int, ...]:
        """Return --sizes. A size that the patch does not divide is an error before any work."""
        sizes = parse_image_sizes(self.sizes)
        for size in sizes:
            if any(size % side for side in model.config.patch_size):
                patch = "×".join(map(str, model.config.patch_size))
                raise UsageError(f"--sizes {size}: must be a multiple of the patch size, {patch} pixels")
        return sizes

    @property
    def _open_options(self) -> dict[str, Any]:
        return {"label": self.label, "data_dir": self.data_dir, "corrupt_limit": self.corrupt_limit}

    @property
    def _read_options(self) -> dict[str, Any]:
        return {"batch_size": self.batch, "corrupt_limit": self.corrupt_limit}
