from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.markup import escape
from tyro.conf import Positional

from vitkit.cli.args import DataDirOption, LabelOption
from vitkit.cli.output import MAX_CLASS_ROWS, console, print_json, print_table, progress_bar

if TYPE_CHECKING:
    from vitkit.data.inspect import Duplicates, Inspection

SHOWN = 10  # entries of a list; --json has all


@dataclass(frozen=True)
class Inspect:
    """Inspect a data set before training: counts, sizes, corrupt files, duplicates, recommended settings."""

    data: Positional[str]
    """A folder of class folders (with or without train/val/test), a CSV, parquet files, an .npz, or a name (digits, cifar10, …)."""  # noqa: E501  # tyro shows it as one line
    label: LabelOption = "label"
    data_dir: DataDirOption = None
    json: bool = False
    """Print the results as JSON, with every corrupt file and every duplicate."""

    def run(self) -> int:
        from vitkit.data.inspect import inspect_data
        from vitkit.data.open import open_data

        # No val split is drawn: it could not leak, because it is drawn by content.
        dataset = open_data(self.data, label=self.label, data_dir=self.data_dir, val_fraction=0, corrupt_limit=1)
        with progress_bar(dataset.name, quiet=self.json) as progress:
            inspection = inspect_data(dataset, progress)
        if self.json:
            print_json(inspection.to_dict())
        else:
            _print(inspection)
        return 0


def _print(found: "Inspection") -> None:
    splits = list(found.splits)
    rows = [[name, *(f"{counts[s]:,}" for s in splits)] for name, counts in found.classes.items()]
    total = ["all", *(f"{found.splits[s]:,}" for s in splits)]
    title = f"{found.name}: {found.images:,} images, {len(rows)} classes"
    if len(rows) > MAX_CLASS_ROWS:
        by_size = sorted(range(len(rows)), key=lambda k: -sum(list(found.classes.values())[k].values()))
        rows = [rows[k] for k in by_size[:SHOWN]] + [["…", *("" for _ in splits)]] + [rows[k] for k in by_size[-SHOWN:]]
        title += f"; the {SHOWN} largest and smallest, --json has all"
    print_table(title, ["class", *splits], [*rows, total])
    print_table(
        "sizes",
        ["", "smallest", "5 %", "median", "95 %", "largest"],
        [[side, *(f"{v:g}" for v in vars(getattr(found, side)).values())] for side in ("width", "height", "aspect")],
    )
    out = console()
    out.print(f"formats    {_tally(found.formats)}; modes {_tally(found.modes)}")
    if found.value_range is not None:
        out.print(f"range      {found.value_range}", markup=False)
    out.print(f"imbalance  {found.imbalance:.1f} (largest class over smallest, in train)")
    kinds = {k: sum(c.kind == k for c in found.copies) for k in ("bytes", "pixels", "near")}
    out.print(
        f"duplicates {kinds['bytes']} groups of equal files, {kinds['pixels']} of equal pixels, {kinds['near']} near"
    )
    for note in found.notes:
        out.print(f"note       {note}", markup=False)
    for split in splits:
        absent = [name for name, counts in found.classes.items() if not counts[split]]
        if absent:
            names = ", ".join(absent[:SHOWN]) + (", …" if len(absent) > SHOWN else "")
            out.print(f"[bold red]absent[/]     {len(absent)} classes have no images in {split}: {escape(names)}")
    for split, count in found.leaked.items():
        if count:
            share = count / found.splits[split]
            out.print(f"[bold red]leakage[/]    {count:,} of {split} ({share:.1%}) have a duplicate in train")
    _print_duplicates("leaks: duplicates across splits", found.leaks)
    _print_duplicates("duplicates with different labels", found.conflicts)
    _print_duplicates("duplicates within a class", [c for c in found.copies if not c.leaks and not c.conflicts])
    if found.corrupt:
        rows = [[split, failure.name, failure.reason] for split, failure in found.corrupt[:SHOWN]]
        title = f"{len(found.corrupt):,} corrupt images ({len(found.corrupt) / found.images:.2%})"
        print_table(title + _more(len(found.corrupt)), ["split", "name", "reason"], rows)
    for reason in found.advice.reasons:
        out.print(f"[bold]suggests[/]   {reason}")


def _print_duplicates(title: str, groups: "list[Duplicates]") -> None:
    if groups:
        rows = [[g.kind, "\n".join(_lines(g)), len(g.members)] for g in groups[:SHOWN]]
        print_table(f"{len(groups):,} {title}{_more(len(groups))}", ["kind", "images", "number"], rows)


def _lines(group: "Duplicates", most: int = 4) -> list[str]:
    """Return a line per image. Those outside train come first: they bias the evaluation."""
    members = sorted(group.members, key=lambda m: m.split == "train")
    shown = members if len(members) <= most else [*members[: most - 1], members[-1]]
    return [f"{m.split}: {m.name} ({m.label})" for m in shown]


def _more(count: int) -> str:
    return f"; the first {SHOWN}, --json has all" if count > SHOWN else ""


def _tally(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
