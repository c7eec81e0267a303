from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from vitkit.cli.model import open_model
from vitkit.cli.show import console, print_json, print_table, tracked

if TYPE_CHECKING:
    from vitkit.data.source import Dataset, Split
    from vitkit.evaluate import Evaluation, Predictions
    from vitkit.model import ViT


@dataclass(frozen=True)
class Eval:
    """Measure a model on a labelled data set: accuracy with intervals, per class, calibration, mistakes."""

    model: Positional[str]
    """A model folder, a run folder, a foreign checkpoint or hf-hub:owner/name."""
    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    split: str | None = None
    """train, val or test; by default test, or val where there is no test."""
    sizes: tuple[int, ...] = ()
    """Measure at these image sizes as well, such as 160 224 288."""
    temperature: bool = False
    """Fit a temperature on the validation split and show the calibration with it."""
    against: str | None = None
    """Another model folder or run folder: is the first better than it on the same images, or was it luck?"""
    knn: tuple[int, ...] | None = None
    """Judge the features instead: each image by its K nearest in the train split; K is chosen there if not given."""
    class_names: str | None = None
    """A JSON file or one name per line, for weights that bring no class names."""
    preprocess: str | None = None
    """A JSON file of preprocessing settings, for weights that bring none."""
    batch: int = 256
    """Images at a time."""
    label: str = "label"
    """The column of the class, in a CSV or parquet file."""
    data_dir: str | None = None
    """Where named data sets lie; $VITKIT_DATA by default."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.evaluate import evaluate_predictions, fit_temperature, predict, sweep
        from vitkit.weights.folder import names_and_preprocess

        model = open_model(self.model, self.class_names, self.preprocess)
        if self.knn is not None:
            return self._nearest(model, self.knn)
        names, preprocess = names_and_preprocess(model, self.model)
        data = self._open(model)
        name, split = self._pick(data, names)
        found = self._predict(model, self.model, data, name)
        evaluation = evaluate_predictions(found)
        answer = {"model": self.model, "data": self.data, "split": name, **evaluation.to_dict()}
        if self.against:
            answer["against"] = self._compare(found, model, data, name)
        if self.sizes:
            answer["sizes"] = [asdict(r) for r in sweep(model, split, preprocess, self.sizes, batch_size=self.batch)]
        if self.temperature:
            _, val = self._pick(data, names, "val")
            fitted = fit_temperature(predict(model, val, preprocess, names, batch_size=self.batch))
            scaled = evaluate_predictions(found.scaled(fitted.temperature))
            answer["temperature"] = {"value": fitted.temperature, "ece": scaled.ece, "nll": scaled.nll}
        if self.json:
            print_json(answer)
        else:
            _show(evaluation, answer)
        return 0

    def _nearest(self, model: "ViT", given: tuple[int, ...]) -> int:
        """The classes are those of the data: the model need not know them."""
        from vitkit.errors import UsageError
        from vitkit.evaluate import evaluate_predictions
        from vitkit.features import preprocess_of
        from vitkit.transfer import nearest

        if len(given) > 1 or any(k < 1 for k in given) or self.sizes or self.temperature or self.against:
            raise UsageError(
                "--knn takes one number above 0 or none, and no --sizes, --temperature or --against with it"
            )
        data = self._open(model)
        name, _ = self._pick(data, data.class_names)
        with tracked(f"features for {name}", quiet=self.json) as progress:
            found = nearest(
                model,
                data,
                name,
                preprocess_of(model, self.model),
                k=sum(given),
                batch=min(self.batch, 64),
                progress=progress,
            )
        evaluation = evaluate_predictions(found.predictions)
        answer = {"model": self.model, "data": self.data, "split": name, "k": found.k, **evaluation.to_dict()}
        if found.left_out is not None:
            answer["left_out_top1"] = found.left_out
        if self.json:
            print_json(answer)
        else:
            _show(evaluation, answer)
            console().print(f"by the {found.k} nearest of the train split, without training", markup=False)
        return 0

    def _predict(self, model: "ViT", called: str, data: "Dataset", split: str) -> "Predictions":
        """What the model says of the split, with labels in its own numbering."""
        from vitkit.evaluate import predict
        from vitkit.weights.folder import names_and_preprocess

        names, preprocess = names_and_preprocess(model, called)
        _, images = self._pick(data, names, split)
        with tracked(f"evaluating {split}", quiet=self.json) as progress:
            return predict(model, images, preprocess, names, batch_size=self.batch, progress=progress)

    def _compare(self, found: "Predictions", model: "ViT", data: "Dataset", split: str) -> dict[str, Any]:
        from vitkit.evaluate import compare
        from vitkit.weights.folder import load_model

        assert self.against is not None
        other = load_model(self.against)
        result = compare(self._predict(other, self.against, data, split), found)
        answer = {"model": self.against, **result.to_dict(), "words": result.in_words(self.against, self.model)}
        if split == "val" and data.made_val and _drawn_by(model) != _drawn_by(other):
            answer["caution"] = f"{self.against} was trained with another validation split: it may know these images"
        return answer

    def _open(self, model: "ViT") -> "Dataset":
        """With the seed of the model's own training, so that a validation split made then is the same one now."""
        from vitkit.data.source import open_data

        return open_data(self.data, label=self.label, data_dir=self.data_dir, **_drawn_by(model))

    def _pick(self, data: "Dataset", names: Sequence[str], wanted: str | None = None) -> tuple[str, "Split"]:
        from vitkit.errors import UnknownNameError
        from vitkit.evaluate.match import match_labels

        name = wanted or self.split or next(n for n in ("test", "val", "train") if n in data.splits)
        if name not in data.splits:
            raise UnknownNameError(f"split of {data.name}", name, data.splits)
        return name, match_labels(data, data.splits[name], names)


def _drawn_by(model: "ViT") -> dict[str, Any]:
    """What decides which images are set aside for validation, where a data set does not say so itself."""
    recipe = model.info.recipe if model.info else None
    return {key: recipe[key] for key in ("seed", "val_fraction")} if recipe else {}


def _show(evaluation: "Evaluation", answer: dict[str, object]) -> None:
    e = evaluation
    intervals = [f"{low:.2%} to {high:.2%}" for low, high in (e.top1_interval, e.top5_interval)]
    print_table(
        f"{answer['model']} on {answer['data']}, {answer['split']} split: {e.n:,} images",
        ["measure", "value", "95 % interval"],
        [
            ["top-1", f"{e.top1:.2%}", intervals[0]],
            ["top-5", f"{e.top5:.2%}", intervals[1]],
            ["balanced accuracy", f"{e.balanced_accuracy:.2%}", ""],
            ["macro F1", f"{e.macro_f1:.2%}", ""],
            ["negative log-likelihood", f"{e.nll:.4f}", ""],
            ["calibration error (ECE)", f"{e.ece:.4f}", ""],
        ],
    )
    print_table(
        "Per class, weakest first",
        ["class", "precision", "recall", "F1", "images"],
        [
            [s.label, *("" if v is None else f"{v:.2%}" for v in (s.precision, s.recall, s.f1)), s.support]
            for s in sorted(e.per_class, key=lambda s: (s.f1 is None, s.f1))
        ],
    )
    if e.mistakes:
        print_table(
            "Most confident mistakes",
            ["image", "is", "predicted", "score"],
            [[m.path, m.label, m.predicted, f"{m.score:.1%}"] for m in e.mistakes[:10]],
        )
    if "sizes" in answer:
        rows = answer["sizes"]
        assert isinstance(rows, list)
        print_table(
            "By image size",
            ["size", "top-1", "95 % interval", "images/s"],
            [
                [r["size"], f"{r['top1']:.2%}", f"{r['interval'][0]:.2%} to {r['interval'][1]:.2%}",
                 f"{r['images_per_s']:,.0f}"]
                for r in rows
            ],
        )  # fmt: skip
    if "temperature" in answer:
        console().print(f"with a temperature fitted on validation: {answer['temperature']}", markup=False)
    if "against" in answer:
        against = answer["against"]
        assert isinstance(against, dict)
        console().print(against["words"], markup=False)
        if "caution" in against:
            console().print(against["caution"], markup=False)
    for line in e.predictions.skipped:
        console(stderr=True).print(f"left out: {line}", markup=False)
