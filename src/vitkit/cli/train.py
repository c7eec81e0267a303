import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from vitkit.cli.output import console, print_json, print_table
from vitkit.errors import UsageError, VitkitError

if TYPE_CHECKING:
    from vitkit.training import Recipe, Result

Word = Annotated[str | None, arg(metavar="NAME")]
Number = Annotated[float | None, arg(metavar="N")]


@dataclass(frozen=True)
class Train:
    """Train a model on a data set, or resume a run."""

    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    out: str
    """Write the run folder here."""
    recipe: Word = None
    """Use this recipe: scratch, probe, finetune, imagenet_s16, digits, cifar10_classic, cifar10_fast or cifar10_best. Default: the recipe with the same name as DATA if there is one, otherwise scratch."""  # noqa: E501  # tyro shows it as one line
    model: Word = None
    """Train this model (`vitkit models` lists the names). Default: chosen by the size of the images."""
    init: Word = None
    """Start from these weights: a model folder, run folder or checkpoint of another library."""
    teacher: Word = None
    """Distil from this model (`--set distill.kind=hard` and other distill settings change how)."""
    epochs: Number = None
    """Train for this number of epochs. Default: the recipe's budget (scratch: 20 epochs)."""
    minutes: Number = None
    """Train for this time instead of a number of epochs."""
    seed: Annotated[int | None, arg(metavar="N")] = None
    """Random seed. Default: 0."""
    label: Word = None
    """Read the class from this column of a CSV or parquet file."""
    data_dir: Word = None
    """Look for named data sets in this folder. Default: $VITKIT_DATA."""
    resume: bool = False
    """Continue the run in the run folder from its newest intact checkpoint."""
    processes: Annotated[int, arg(metavar="N")] = 1
    """Train with this number of processes on this machine, e.g. one per GPU."""
    log: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME")] = field(default=())
    """Log the metrics to wandb, mlflow or tensorboard too (tensorboard is used if it is installed). Repeat it for several."""  # noqa: E501  # tyro shows it as one line
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY.PATH=VALUE")] = field(default=())
    """Change settings of the recipe, e.g. optimizer.lr=1e-3. Accepts several KEY.PATH=VALUE pairs. docs/reference/recipes.md lists them."""  # noqa: E501  # tyro shows it as one line
    json: bool = False
    """Print the results as JSON."""

    def run(self) -> int:
        from vitkit.report import LiveReport, write_report
        from vitkit.training.launch import is_launched, launch
        from vitkit.training.train import train

        recipe = self.resolve()
        if self.processes > 1 and not is_launched():
            return launch([sys.executable, "-m", "vitkit", *sys.argv[1:]], self.processes)
        with LiveReport() as live:
            result = train(recipe, self.out, resume=self.resume, quiet=self.json, on_record=live, loggers=self.log)
        if not result.is_main:
            return 0
        if not self.json:  # before the report, which takes a while
            print_result(result)
            console().print(f"model   {self.out}/model", markup=False)
            console(stderr=True).print("writing the report, including the faithfulness of the attention maps")
        report = None
        try:
            report = write_report(self.out)
        except (VitkitError, OSError) as error:  # the model is complete without it
            retry = f"`vitkit report {self.out}` tries again"
            console(stderr=True).print(f"the report could not be written: {error}; {retry}", markup=False)
        if self.json:
            print_json(result.to_dict() | {"report": report and str(report)})
        elif report:
            console().print(f"report  {report}", markup=False)
        return 0

    def resolve(self) -> "Recipe":
        """Return the named recipe with the changes of the command line."""
        from vitkit.training import RECIPES, get_recipe
        from vitkit.training.run_dir import read_recipe

        if self.epochs is not None and self.minutes is not None:
            raise UsageError("--epochs and --minutes are both given: a run has one budget, remove one of them")
        if self.minutes is not None and not self.minutes > 0:
            raise UsageError(f"--minutes {self.minutes:g}: must be above 0")
        if self.processes < 1:
            raise UsageError(f"--processes {self.processes}: must be at least 1")
        if self.init is not None and self.model is not None:
            raise UsageError("--model and --init are both given: the weights define the model, remove --model")
        name = self.recipe or (self.data if self.data in RECIPES else "scratch")
        if self.resume and self.recipe is None and (Path(self.out) / "recipe.json").is_file():
            recipe = read_recipe(Path(self.out))
        else:
            recipe = get_recipe(name)
        given: dict[str, Any] = {"data": self.data, "model": self.model, "init": self.init, "seed": self.seed}
        given |= {"label": self.label, "data_dir": self.data_dir}
        recipe = recipe.replace(**{key: value for key, value in given.items() if value is not None})
        if self.teacher is not None:
            recipe = recipe.replace(distill=replace(recipe.distill, teacher=self.teacher))
        if self.epochs is not None:
            recipe = recipe.replace(budget=replace(recipe.budget, epochs=self.epochs, minutes=0.0))
        if self.minutes is not None:
            recipe = recipe.replace(budget=replace(recipe.budget, minutes=self.minutes))
        recipe = recipe.override(self.set)
        if recipe.head == "probe" and not recipe.init:
            raise UsageError(f"recipe {name!r} needs pretrained weights: pass --init WEIGHTS")
        return recipe


def print_result(result: "Result") -> None:
    rows = []
    for name, measured in (("validation", result.val), ("test", result.test)):
        if measured:
            low, high = measured["top1_interval"]
            rows.append([name, f"{measured['n']:,}", f"{measured['top1']:.2%}", f"{low:.2%} to {high:.2%}",
                         f"{measured['top5']:.2%}", f"{measured['ece']:.3f}"])  # fmt: skip
    title = f"{result.epochs:.4g} epochs in {result.seconds / 60:.1f} minutes"
    print_table(title, ["split", "images", "top-1", "95 % interval", "top-5", "calibration error"], rows)
