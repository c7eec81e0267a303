"""The comparison of several runs: results, learning curves, significance tests, F1 per class."""

import itertools
import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from vitkit.errors import DataError
from vitkit.evaluation import Evaluation, compare, mean_interval
from vitkit.report.charts import LINE_STYLES
from vitkit.report.compare_runs import RecipeComparison
from vitkit.report.curves import overlaid_curves
from vitkit.report.html import Cell, duration, header, heading, page, percent, section, table, text
from vitkit.report.run_record import RunRecord
from vitkit.report.run_report import reproduction

MAX_PAIRS = 10  # if there are more, each run is tested only against the best
SECTIONS = ("Results", "Learning curves", "Significance tests", "F1 per class", "Reproduce")


def letter(index: int) -> str:
    """Name a run by its index: A … Z, AA …"""
    return (letter(index // 26 - 1) if index >= 26 else "") + chr(ord("A") + index % 26)


def comparison_page(runs: Sequence[RunRecord], recipes: RecipeComparison | None = None) -> str:
    names = ", ".join(f"{letter(i)} {run.name}" for i, run in enumerate(runs))
    finished = [(letter(i), run.evaluation) for i, run in enumerate(runs) if run.evaluation is not None]
    body = [
        header(f"Comparison of {len(runs)} runs", names, SECTIONS),
        section("Results", _legend(runs), _numbers(runs), _recipes(recipes), _seeds(runs), _differences(runs)),
        section("Learning curves", overlaid_curves(runs, letter)),
        section("Significance tests", _tests(finished)),
        section("F1 per class", _classes(finished)),
        section("Reproduce", *(heading(f"{letter(i)} {run.name}") + reproduction(run) for i, run in enumerate(runs))),
    ]
    return page(f"vitkit: comparison of {len(runs)} runs", body)


def _legend(runs: Sequence[RunRecord]) -> str:
    """Show the line style of each run."""
    items = "".join(
        f"<li><svg class='swatch' width='34' height='10' aria-hidden='true'>"
        f"<path class='line s{i % LINE_STYLES}' d='M0,5L34,5'/></svg> "
        f"<strong>{letter(i)}</strong> {escape(str(run.folder))}</li>"
        for i, run in enumerate(runs)
    )
    return f"<ul class='legend'>{items}</ul>\n"


def _numbers(runs: Sequence[RunRecord]) -> str:
    columns = ["run", "data", "model", "test top-1", "95 % interval", "val top-1", "ECE", "NLL",
               "parameters, M", "epochs", "time"]  # fmt: skip
    return table(columns, [_row(i, run) for i, run in enumerate(runs)], "Results of each run")


def _row(index: int, run: RunRecord) -> list[Any]:
    first = [f"{letter(index)}\u00a0{run.name}", run.recipe.data, run.model]
    if run.result is None:
        epoch = run.last("epoch") or 0.0
        none = percent(None)
        val_top1 = percent(run.last("val_top1"))
        return [*first, none, Cell("not finished", None), val_top1, none, none, none, epoch, none]
    r, test = run.result, run.result["test"]
    measured = test or r["val"]
    low, high = measured["top1_interval"]
    interval = Cell(f"{low:.2%} to {high:.2%}{'' if test else ' (val)'}", low)
    seconds = Cell(duration(r["seconds"]), r["seconds"])
    top1 = Cell(f"{test['top1']:.2%}", test["top1"]) if test else percent(None)
    return [*first, top1, interval, Cell(f"{r['val']['top1']:.2%}", r["val"]["top1"]), measured["ece"],
            measured["nll"], r["parameters"] / 1e6, r["epochs"], seconds]  # fmt: skip


def _recipes(recipes: RecipeComparison | None) -> str:
    """Compare the two recipes of `--against`, whose runs are the first and the last letters."""
    if recipes is None:
        return ""
    first, last = len(recipes.seeds_a), len(recipes.seeds_a) + len(recipes.seeds_b)
    names = f"{letter(0)}–{letter(first - 1)}", f"{letter(first)}–{letter(last - 1)}"
    return heading("The two recipes") + text(recipes.summary(*names))


def _seeds(runs: Sequence[RunRecord]) -> str:
    """Average runs that differ only in their seed."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        if run.result:
            groups.setdefault(json.dumps({**run.recipe.to_dict(), "seed": 0}, sort_keys=True), []).append(run)
    found = []
    for group in (g for g in groups.values() if len(g) > 1 and len({r.recipe.seed for r in g}) == len(g)):
        split = "test" if all(r.split == "test" for r in group) else "val"
        mean = mean_interval([r.result[split]["top1"] for r in group if r.result])
        found.append(
            text(f"Mean of {len(group)} seeds of {group[0].model} on {group[0].recipe.data}: {split} top-1 "
                 f"{mean.mean:.2%}, 95 % interval {max(mean.interval[0], 0):.2%} to {min(mean.interval[1], 1):.2%} "
                 f"(Student's t; standard deviation {100 * mean.std:.2f} points).")
        )  # fmt: skip
    return "".join(found)


def _differences(runs: Sequence[RunRecord]) -> str:
    flat = [_flat(run.recipe.to_dict()) for run in runs]
    keys = [key for key in dict.fromkeys(itertools.chain(*flat)) if len({str(f.get(key)) for f in flat}) > 1]
    if not keys:
        return text("The recipes are identical.")
    rows = [[key, *(str(f.get(key, "–")) for f in flat)] for key in keys]
    columns = ["setting", *(letter(i) for i in range(len(runs)))]
    return heading("Differences between the recipes") + table(columns, rows, "Settings that differ")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {prefix + key: value}
    return found


def _tests(finished: Sequence[tuple[str, Evaluation]]) -> str:
    if len(finished) < 2:
        return text("At least two finished runs are needed for a paired test.")
    rows, notes = [], []
    pairs = list(itertools.combinations(finished, 2))
    if len(pairs) > MAX_PAIRS:
        best = max(finished, key=lambda entry: entry[1].top1)
        pairs = [(other, best) for other in finished if other is not best]
    for (name_a, a), (name_b, b) in pairs:
        try:
            found = compare(a, b)
        except DataError as error:
            notes.append(text(f"{name_a} and {name_b} were not evaluated on the same images: {error}"))
            continue
        notes.append(text(found.summary(name_a, name_b)))
        low, high = (100 * v for v in found.interval)
        rows.append([
            f"{name_a} → {name_b}", found.n, Cell(f"{100 * found.difference:+.2f}", found.difference),
            Cell(f"{low:+.2f} to {high:+.2f}", low), found.only_a, found.only_b,
            Cell(f"{found.p_value:.2g}", found.p_value),
        ])  # fmt: skip
    columns = ["pair", "images", "difference, points", "95 % interval", "only 1st correct", "only 2nd correct", "p"]
    shown = table(columns, rows, "Paired comparison on the same images (McNemar's exact test)") if rows else ""
    if len(rows) > 1:
        shown += text(
            f"{len(rows)} tests: without any real difference, about 1 in 20 tests has p < 0.05. With Bonferroni "
            f"correction, require p < {0.05 / len(rows):.2g}."
        )
    return shown + "".join(notes)


def _classes(finished: Sequence[tuple[str, Evaluation]]) -> str:
    """Compare F1 per class, if all runs have the same classes."""
    names = {e.predictions.class_names for _, e in finished}
    if len(finished) < 2 or len(names) > 1:
        return text("At least two finished runs with the same classes are needed.")
    columns = ["class", *(f"F1 of {run}" for run, _ in finished), "range"]
    rows = []
    for k, name in enumerate(next(iter(names))):
        scores = [e.per_class[k].f1 for _, e in finished]
        known = [s for s in scores if s is not None]
        rows.append([name, *(percent(s) for s in scores), percent(max(known) - min(known)) if known else percent(None)])
    return table(columns, rows, "F1 of each run, and the range over the runs")
