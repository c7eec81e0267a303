from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tyro.conf import Positional

from vitkit.cli.show import console, print_json, print_table, tracked

if TYPE_CHECKING:
    from vitkit.data.source import Dataset, Split
    from vitkit.evaluate import Evaluation
    from vitkit.model import ViT


@dataclass(frozen=True)
class Eval:
    """Measure a model on a labelled data set: accuracy with intervals, per class, calibration, mistakes."""

    model: Positional[str]
    """A model folder or a run folder."""
    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    split: str | None = None
    """train, val or test; by default test, or val where there is no test."""
    sizes: tuple[int, ...] = ()
    """Measure at these image sizes as well, such as 160 224 288."""
    temperature: bool = False
    """Fit a temperature on the validation split and show the calibration with it."""
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
        from vitkit.weights.folder import load_model, names_and_preprocess

        model = load_model(self.model)
        names, preprocess = names_and_preprocess(model, self.model)
        data = self._open(model)
        name, split = self._pick(data, model)
        with tracked(f"evaluating {name}", quiet=self.json) as progress:
            found = predict(model, split, preprocess, names, batch_size=self.batch, progress=progress)
        evaluation = evaluate_predictions(found)
        answer = {"model": self.model, "data": self.data, "split": name, **evaluation.to_dict()}
        if self.sizes:
            answer["sizes"] = [asdict(r) for r in sweep(model, split, preprocess, self.sizes, batch_size=self.batch)]
        if self.temperature:
            _, val = self._pick(data, model, "val")
            fitted = fit_temperature(predict(model, val, preprocess, names, batch_size=self.batch))
            scaled = evaluate_predictions(found.scaled(fitted.temperature))
            answer["temperature"] = {"value": fitted.temperature, "ece": scaled.ece, "nll": scaled.nll}
        if self.json:
            print_json(answer)
        else:
            _show(evaluation, answer)
        return 0

    def _open(self, model: "ViT") -> "Dataset":
        """With the seed of the model's own training, so that a validation split made then is the same one now."""
        from vitkit.data.source import open_data

        recipe = model.info.recipe
        made = {"seed": recipe["seed"], "val_fraction": recipe["val_fraction"]} if recipe else {}
        return open_data(self.data, label=self.label, data_dir=self.data_dir, **made)

    def _pick(self, data: "Dataset", model: "ViT", wanted: str | None = None) -> tuple[str, "Split"]:
        from vitkit.errors import UnknownNameError
        from vitkit.evaluate.match import match_labels

        name = wanted or self.split or next(n for n in ("test", "val", "train") if n in data.splits)
        if name not in data.splits:
            raise UnknownNameError(f"split of {data.name}", name, data.splits)
        return name, match_labels(data, data.splits[name], model.info.class_names)


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
    for line in e.predictions.skipped:
        console(stderr=True).print(f"left out: {line}", markup=False)
