import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from vitkit.cli.output import console, print_json, print_table
from vitkit.errors import UsageError, VitkitError

if TYPE_CHECKING:
    from vitkit.training import Recipe, Result

Word = Annotated[str | None, arg(metavar="NAME")]
Number = Annotated[float | None, arg(metavar="N")]


@dataclass(frozen=True)
class Train:
    """Train a model on a data set, or go on with a run."""

    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    out: str
    """The run folder to make."""
    recipe: Word = None
    """A named recipe; by default the one named like the data, or 'scratch'."""
    model: Word = None
    """A model name (`vitkit models` lists them); by default what suits the images."""
    init: Word = None
    """Start from these weights: a model folder, run folder or foreign checkpoint."""
    teacher: Word = None
    """Learn from this model's answers as well (distillation); `--set distill.kind=hard` and the like say how."""
    epochs: Number = None
    """How often to go through the training images."""
    minutes: Number = None
    """Instead of epochs: plan the run for this time."""
    seed: Annotated[int | None, arg(metavar="N")] = None
    """Decides the first weights, the order of the images and every random draw."""
    label: Word = None
    """The column of the class, in a CSV or parquet file."""
    data_dir: Word = None
    """Where named data sets lie; $VITKIT_DATA by default."""
    resume: bool = False
    """Go on from the newest whole checkpoint of the run folder."""
    processes: Annotated[int, arg(metavar="N")] = 1
    """Train in so many processes of this machine, such as one per GPU."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY.PATH=VALUE")] = field(default=())
    """Change one setting of the recipe, such as optimizer.lr=1e-3; may be given several times."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.report import LiveReport, write_report
        from vitkit.training import train
        from vitkit.training.launch import launch, launched

        recipe = self.resolve()
        if self.processes > 1 and not launched():
            return launch([sys.executable, "-m", "vitkit", *sys.argv[1:]], self.processes)
        with LiveReport() as live:
            result = train(recipe, self.out, resume=self.resume, quiet=self.json, on_record=live)
        if not result.is_main:
            return 0
        if not self.json:  # before the report: that takes a while, and who waits has the figures already
            show_result(result)
            console().print(f"model   {self.out}/model", markup=False)
            console(stderr=True).print("writing the report, which measures how far the maps can be trusted")
        report = None
        try:
            report = write_report(self.out)
        except (VitkitError, OSError) as error:  # the model is there all the same
            console(stderr=True).print(f"no report: {error}; `vitkit report {self.out}` tries again", markup=False)
        if self.json:
            print_json(result.to_dict() | {"report": report and str(report)})
        elif report:
            console().print(f"report  {report}", markup=False)
        return 0

    def resolve(self) -> "Recipe":
        """The named recipe with the command line's changes."""
        from vitkit.training import RECIPES, get_recipe
        from vitkit.training.run_dir import read_recipe

        if self.epochs is not None and self.minutes is not None:
            raise UsageError("--epochs and --minutes are two budgets for one run: give one of them")
        if self.minutes is not None and not self.minutes > 0:
            raise UsageError(f"--minutes {self.minutes:g}: must be above 0")
        if self.processes < 1:
            raise UsageError(f"--processes {self.processes}: must be at least 1")
        if self.init is not None and self.model is not None:
            raise UsageError("--model cannot be chosen together with --init: the weights bring their own")
        if self.resume and self.recipe is None and (Path(self.out) / "recipe.json").is_file():
            recipe = read_recipe(Path(self.out))
        else:
            recipe = get_recipe(self.recipe or (self.data if self.data in RECIPES else "scratch"))
        given = {"data": self.data, "model": self.model, "init": self.init, "seed": self.seed, "label": self.label}
        given |= {"data_dir": self.data_dir}
        recipe = replace(recipe, **{key: value for key, value in given.items() if value is not None})  # type: ignore[arg-type]  # a mixed dictionary
        if self.teacher is not None:
            recipe = replace(recipe, distill=replace(recipe.distill, teacher=self.teacher))
        if self.epochs is not None:
            recipe = replace(recipe, budget=replace(recipe.budget, epochs=self.epochs, minutes=0.0))
        if self.minutes is not None:
            recipe = replace(recipe, budget=replace(recipe.budget, minutes=self.minutes))
        return recipe.override(self.set)


def show_result(result: "Result") -> None:
    rows = []
    for name, measured in (("validation", result.val), ("test", result.test)):
        if measured:
            low, high = measured["top1_interval"]
            rows.append([name, f"{measured['n']:,}", f"{measured['top1']:.2%}", f"{low:.2%} to {high:.2%}",
                         f"{measured['top5']:.2%}", f"{measured['ece']:.3f}"])  # fmt: skip
    title = f"{result.epochs:.4g} epochs in {result.seconds / 60:.1f} minutes"
    print_table(title, ["split", "images", "top-1", "95 % interval", "top-5", "calibration error"], rows)
