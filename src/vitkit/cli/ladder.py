from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from vitkit.cli.output import console, print_json, print_table
from vitkit.cli.output_paths import check_output_dir

if TYPE_CHECKING:
    from vitkit.training.ladder import Ladder as Climbed
    from vitkit.training.ladder import Rung


@dataclass(frozen=True)
class Ladder:
    """Nearest neighbours, then a probe, then fine-tuning: side by side, as far as it pays; the best is kept."""

    data: Positional[str]
    """A folder of class folders, a CSV, a parquet file, an .npz of arrays, or a name such as digits or cifar10."""
    init: str
    """The weights to start from: a model folder, run folder or foreign checkpoint."""
    out: str
    """The folder to make: the runs, ladder.json, and the best model."""
    minutes: Annotated[float, arg(metavar="M")] = 10.0
    """For all rungs together."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Decides the order of the images and every random draw."""
    label: str = "label"
    """The column of the class, in a CSV or parquet file."""
    data_dir: str | None = None
    """Where named data sets lie; $VITKIT_DATA by default."""
    resume: bool = False
    """Go on with a ladder that was interrupted."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY.PATH=VALUE")] = field(default=())
    """Change one setting of the fine-tuning, such as optimizer.lr=1e-3, or of all rungs, such as val_fraction=0.2; may be given several times."""  # noqa: E501  # tyro shows it as one line
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.errors import UsageError
        from vitkit.training.ladder import climb

        if not self.minutes > 0:
            raise UsageError(f"--minutes {self.minutes:g}: must be above 0")
        check_output_dir(self.out)
        climbed = climb(
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
            say=lambda rung: None if self.json else _say(rung),
        )
        if self.json:
            print_json(climbed.to_dict())
        else:
            _show(climbed, self.data, self.init)
        return 0


def _say(rung: "Rung") -> None:
    console(stderr=True).print(f"{rung.name}: {rung.val['top1']:.2%} of validation in {rung.seconds:.0f} s")


def _show(climbed: "Climbed", data: str, init: str) -> None:
    tested = climbed.rungs[0].test is not None
    rows = []
    for rung in climbed.rungs:
        measured = [m for m in (rung.val, rung.test) if m]
        cells = [c for m in measured for c in (f"{m['top1']:.2%}", "{:.2%} to {:.2%}".format(*m["top1_interval"]))]
        spent = f"{rung.seconds:.0f}", f"{rung.core_seconds / 60:.1f}"
        rows.append([rung.name + (" ←" if rung.name == climbed.best else ""), *cells, *spent, rung.note])
    heads = ["validation", "95 % interval", *(["test", "95 % interval"] if tested else [])]
    print_table(f"{data} from {init}", ["rung", *heads, "seconds", "core minutes", ""], rows)
    out = console()
    out.print(f"{climbed.stopped}; the best by validation: {climbed.best}", markup=False)
    if not tested:
        out.print("no test split: the choice and its figure are of the same images, so it is a little hopeful")
    if climbed.model:
        out.print(f"model   {climbed.model}", markup=False)
