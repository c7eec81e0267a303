from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from vitkit.cli.output import JsonOption, console, print_json, print_table
from vitkit.cli.output_paths import check_output_dir

if TYPE_CHECKING:
    from vitkit.training.ladder import LadderResult, Stage


@dataclass(frozen=True)
class Ladder:
    """Compare k-NN, a linear probe and fine-tuning of the same weights, and keep the best model."""

    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    init: str
    """Start from these weights: a model folder, run folder or checkpoint of another library."""
    out: str
    """Write the runs, ladder.json and the best model into this folder."""
    minutes: Annotated[float, arg(metavar="M")] = 10.0
    """Time for all stages together."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Random seed."""
    label: str = "label"
    """Read the class from this column of a CSV or parquet file."""
    data_dir: str | None = None
    """Look for named data sets in this folder. Default: $VITKIT_DATA."""
    resume: bool = False
    """Continue an interrupted ladder."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY.PATH=VALUE")] = field(default=())
    """Change settings of the fine-tuning, e.g. optimizer.lr=1e-3, or of all stages, e.g. val_fraction=0.2. Accepts several KEY.PATH=VALUE pairs. docs/reference/recipes.md lists them."""  # noqa: E501  # tyro shows it as one line
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.errors import UsageError
        from vitkit.training.ladder import run_stages

        if not self.minutes > 0:
            raise UsageError(f"--minutes {self.minutes:g}: must be above 0")
        check_output_dir(self.out)
        result = run_stages(
            self.data,
            self.init,
            self.out,
            minutes=self.minutes,
            label=self.label,
            data_dir=self.data_dir or "",
            seed=self.seed,
            changes=self.set,
            resume=self.resume,
            quiet=self.json,
            on_stage=lambda stage: None if self.json else _print_stage(stage),
        )
        if self.json:
            print_json(result.to_dict())
        else:
            _print_result(result, self.data, self.init)
        return 0


def _print_stage(stage: "Stage") -> None:
    accuracy = f"{stage.val['top1']:.2%} validation accuracy"
    console(stderr=True).print(f"{stage.name}: {accuracy} in {stage.seconds:.0f} s")


def _print_result(result: "LadderResult", data: str, init: str) -> None:
    tested = result.stages[0].test is not None
    rows = []
    for stage in result.stages:
        measured = [m for m in (stage.val, stage.test) if m]
        cells = [c for m in measured for c in (f"{m['top1']:.2%}", "{:.2%} to {:.2%}".format(*m["top1_interval"]))]
        spent = f"{stage.seconds:.0f}", f"{stage.core_seconds / 60:.1f}"
        rows.append([stage.name + (" ←" if stage.name == result.best else ""), *cells, *spent, stage.note])
    heads = ["validation", "95 % interval", *(["test", "95 % interval"] if tested else [])]
    print_table(f"{data} from {init}", ["stage", *heads, "seconds", "core minutes", ""], rows)
    out = console()
    out.print(f"{result.stopped}; best by validation: {result.best}", markup=False)
    if not tested:
        out.print("no test split: this accuracy is optimistically biased by model selection")
    if result.model:
        out.print(f"model   {result.model}", markup=False)
