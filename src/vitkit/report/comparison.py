"""Several runs side by side: their numbers, their curves, and whether a difference is more than chance."""

import itertools
import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from vitkit.errors import DataError
from vitkit.evaluation import compare
from vitkit.evaluation.comparison import mean_interval
from vitkit.report.charts import STYLES
from vitkit.report.curves import overlaid
from vitkit.report.html import (
    Cell,
    code,
    details,
    duration,
    facts,
    header,
    heading,
    page,
    percent,
    section,
    table,
    text,
)
from vitkit.report.run import Run
from vitkit.report.run_report import command

PAIRS = 10  # tested at most: above, only against the best
PARTS = ("The runs", "Learning curves", "Is it more than chance?", "Per class", "To repeat them")


def letter(index: int) -> str:
    """A … Z, AA …"""
    return (letter(index // 26 - 1) if index >= 26 else "") + chr(ord("A") + index % 26)


def comparison_page(runs: Sequence[Run]) -> str:
    names = ", ".join(f"{letter(i)} {run.name}" for i, run in enumerate(runs))
    body = [
        header(f"{len(runs)} runs compared", names, PARTS),
        section("The runs", _legend(runs), _numbers(runs), _seeds(runs), _differences(runs)),
        section("Learning curves", overlaid(runs, letter)),
        section("Is it more than chance?", _tests(runs)),
        section("Per class", _classes(runs)),
        section("To repeat them", *(_repeat(i, run) for i, run in enumerate(runs))),
    ]
    return page(f"vitkit: {len(runs)} runs compared", body)


def _legend(runs: Sequence[Run]) -> str:
    """The colour and the dashes of each, as the curves have them."""
    items = "".join(
        f"<li><svg class='swatch' width='34' height='10' aria-hidden='true'>"
        f"<path class='line s{i % STYLES}' d='M0,5L34,5'/></svg> "
        f"<strong>{letter(i)}</strong> {escape(str(run.folder))}</li>"
        for i, run in enumerate(runs)
    )
    return f"<ul class='legend'>{items}</ul>\n"


def _numbers(runs: Sequence[Run]) -> str:
    columns = ["run", "data", "model", "test top-1", "95 % interval", "val top-1", "calibration error", "NLL",
               "parameters, M", "epochs", "time"]  # fmt: skip
    return table(columns, [_row(i, run) for i, run in enumerate(runs)], "What each came to")


def _row(index: int, run: Run) -> list[Any]:
    first = [f"{letter(index)}\u00a0{run.name}", run.recipe.data, run.model]
    if run.result is None:
        epoch = run.last("epoch") or 0.0
        nothing = percent(None)
        return [
            *first,
            nothing,
            Cell("not finished", None),
            percent(run.last("val_top1")),
            *[nothing] * 3,
            epoch,
            nothing,
        ]
    r, test = run.result, run.result["test"]
    measured = test or r["val"]
    low, high = measured["top1_interval"]
    interval = Cell(f"{low:.2%} to {high:.2%}{'' if test else ' (val)'}", low)
    seconds = Cell(duration(r["seconds"]), r["seconds"])
    top1 = Cell(f"{test['top1']:.2%}", test["top1"]) if test else percent(None)
    return [*first, top1, interval, Cell(f"{r['val']['top1']:.2%}", r["val"]["top1"]), measured["ece"],
            measured["nll"], r["parameters"] / 1e6, r["epochs"], seconds]  # fmt: skip


def _seeds(runs: Sequence[Run]) -> str:
    """Runs that differ in their seed alone are repetitions: their mean says more than the best of them."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.result:
            groups.setdefault(json.dumps({**run.recipe.to_dict(), "seed": 0}, sort_keys=True), []).append(run)
    found = []
    for group in (g for g in groups.values() if len(g) > 1 and len({r.recipe.seed for r in g}) == len(g)):
        split = "test" if all(r.split == "test" for r in group) else "val"
        mean = mean_interval([r.result[split]["top1"] for r in group if r.result])
        found.append(
            text(f"{len(group)} seeds of {group[0].model} on {group[0].recipe.data}: {split} top-1 {mean.mean:.2%} on "
                 f"average, 95 % interval {max(mean.interval[0], 0):.2%} to {min(mean.interval[1], 1):.2%} "
                 f"(Student's t, standard deviation {100 * mean.std:.2f} points).")
        )  # fmt: skip
    return "".join(found)


def _differences(runs: Sequence[Run]) -> str:
    flat = [_flat(run.recipe.to_dict()) for run in runs]
    keys = [key for key in dict.fromkeys(itertools.chain(*flat)) if len({str(f.get(key)) for f in flat}) > 1]
    if not keys:
        return text("Their recipes are the same.")
    rows = [[key, *(str(f.get(key, "–")) for f in flat)] for key in keys]
    return heading("What differs in their recipes") + table(
        ["setting", *(letter(i) for i in range(len(runs)))], rows, "Only settings that differ"
    )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {prefix + key: value}
    return found


def _tests(runs: Sequence[Run]) -> str:
    judged = [(i, run) for i, run in enumerate(runs) if run.evaluation is not None]
    if len(judged) < 2:
        return text("At least two finished runs are needed to compare their answers image by image.")
    rows, notes = [], []
    for (i, a), (j, b) in _pairs(judged):
        assert a.evaluation is not None
        assert b.evaluation is not None
        try:
            found = compare(a.evaluation, b.evaluation)
        except DataError as error:
            notes.append(text(f"{letter(i)} and {letter(j)} were not judged on the same images: {error}"))
            continue
        notes.append(text(found.summary(letter(i), letter(j))))
        low, high = (100 * v for v in found.interval)
        rows.append([
            f"{letter(i)} → {letter(j)}", found.n, Cell(f"{100 * found.difference:+.2f}", found.difference),
            Cell(f"{low:+.2f} to {high:+.2f}", low), found.only_a, found.only_b,
            Cell(f"{found.p_value:.2g}", found.p_value),
        ])  # fmt: skip
    columns = ["pair", "images", "points", "95 % interval", "only the first", "only the second", "p"]
    shown = table(columns, rows, "Pairs on the same images; McNemar's exact test") if rows else ""
    several = ""
    if len(rows) > 1:
        several = text(
            f"{len(rows)} tests: by chance alone about one in twenty has p below 0.05; to be strict, ask for p below "
            f"{0.05 / len(rows):.2g}."
        )
    return shown + several + "".join(notes)


def _pairs(judged: Sequence[tuple[int, Run]]) -> list[tuple[tuple[int, Run], tuple[int, Run]]]:
    every = list(itertools.combinations(judged, 2))
    if len(every) <= PAIRS:
        return every
    best = max(judged, key=lambda entry: entry[1].evaluation.top1 if entry[1].evaluation else 0.0)
    return [(other, best) for other in judged if other[0] != best[0]]


def _classes(runs: Sequence[Run]) -> str:
    """F1 of each class, of runs that know the same classes."""
    judged = [(i, run.evaluation) for i, run in enumerate(runs) if run.evaluation is not None]
    names = {e.predictions.class_names for _, e in judged}
    if len(judged) < 2 or len(names) > 1:
        return text("The runs do not have the same classes, or are not finished.")
    columns = ["class", *(f"F1 of {letter(i)}" for i, _ in judged), "spread"]
    rows = []
    for k, name in enumerate(next(iter(names))):
        scores = [e.per_class[k].f1 for _, e in judged]
        known = [s for s in scores if s is not None]
        rows.append([name, *(percent(s) for s in scores), percent(max(known) - min(known)) if known else percent(None)])
    return table(columns, rows, "F1 per class")


def _repeat(index: int, run: Run) -> str:
    environment = [(k, json.dumps(v) if isinstance(v, dict) else v) for k, v in run.environment.items()]
    return (
        heading(f"{letter(index)} {run.name}")
        + code(command(run))
        + details("Recipe", code(json.dumps(run.recipe.to_dict(), indent=2)))
        + details("Environment", facts(environment))
    )
