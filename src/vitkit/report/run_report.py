"""What one run has to tell, in the order in which one asks."""

import json
import shlex
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from vitkit.report.curves import curves
from vitkit.report.data_card import data_card
from vitkit.report.examples import examples, mistakes
from vitkit.report.faithfulness import trust
from vitkit.report.html import cards, code, details, duration, facts, header, page, section
from vitkit.report.model_internals import inside
from vitkit.report.performance import performance_section
from vitkit.report.run import Run
from vitkit.report.run_assets import open_subject

PARTS = (
    "Learning curves", "Performance", "Most confident mistakes", "What it looks at", "The data", "The model",
    "To repeat it",
)  # fmt: skip


def run_page(run: Run) -> str:
    """Everything; of a run that is not finished, what there is so far."""
    subject = open_subject(run)
    body = [summary(run), section("Learning curves", curves(run))]
    if run.evaluation is not None:
        body += [
            performance_section(run.evaluation, run.split),
            mistakes(subject, run.evaluation),
            examples(subject, run.evaluation, trust(subject, run.evaluation)),
        ]
    body.append(data_card(subject))
    if subject.model is not None:
        body.append(inside(subject, run.evaluation))
    body.append(repeat(run))
    parts = [p for p in PARTS if run.result or p in ("Learning curves", "The data", "To repeat it")]
    return page(_title(run), [_header(run, parts), *body])


def live_page(run: Run, refresh: int) -> str:
    """Only what costs next to nothing, for a run that goes on: no data and no model is opened."""
    parts = ["Learning curves", "To repeat it"]
    body = [summary(run), section("Learning curves", curves(run)), repeat(run)]
    return page(_title(run), [_header(run, parts), *body], refresh)


def summary(run: Run) -> str:
    return _finished(run.result) if run.result else _so_far(run)


def repeat(run: Run) -> str:
    environment = [
        (k, ", ".join(f"{a} {b}" for a, b in v.items()) if isinstance(v, dict) else v)
        for k, v in run.environment.items()
    ]
    python = (
        "import json, vitkit\n"
        f"recipe = vitkit.Recipe.from_dict(json.load(open({str(run.folder / 'recipe.json')!r})))\n"
        'vitkit.train(recipe, "again")'
    )
    return section(
        "To repeat it",
        code(command(run)),
        details("From Python, whatever started it", code(python)),
        details("Recipe", code(json.dumps(run.recipe.to_dict(), indent=2))),
        details("Environment", facts(environment)),
    )


def command(run: Run) -> str:
    """As it was given, without the place where the program lies; processes of one run are started by `vitkit` too."""
    try:
        program, *rest = shlex.split(str(run.environment.get("command", "")))
    except ValueError:  # nothing, or no command of a shell
        return ""
    name = Path(program).name
    return shlex.join(["vitkit" if name == "__main__.py" else name, *rest])


def _title(run: Run) -> str:
    return f"vitkit: {run.model} on {run.recipe.data}"


def _header(run: Run, parts: list[str]) -> str:
    return header(f"{run.recipe.data}: {run.model}", f"run {run.name}, seed {run.recipe.seed}", parts)


def _finished(result: dict[str, Any]) -> str:
    numbers = []
    for name, label in (("test", "test accuracy"), ("val", "validation accuracy")):
        if result[name]:
            low, high = result[name]["top1_interval"]
            remark = f"{result[name]['n']:,} images; 95 %: {low:.1%} to {high:.1%}"
            numbers.append((label, f"{result[name]['top1']:.2%}", remark))
    measured = result["test"] or result["val"]
    numbers += [
        ("calibration error", f"{measured['ece']:.3f}", "0 is perfect"),
        ("parameters", f"{result['parameters'] / 1e6:.2f} M", f"{result['steps']:,} steps"),
        ("time", duration(result["seconds"]), f"{result['epochs']:.4g} epochs"),
    ]
    return cards(numbers)


def _so_far(run: Run) -> str:
    epoch, budget = run.last("epoch"), run.recipe.budget
    planned = f"planned: {budget.minutes:g} min" if budget.minutes else f"of {budget.epochs:g}"
    numbers = [("epochs so far", "0" if epoch is None else f"{epoch:.4g}", planned)]
    for key, label, form in (
        ("val_top1", "validation accuracy", "{:.2%}"),
        ("val_loss", "validation loss", "{:.4f}"),
        ("loss", "training loss", "{:.4f}"),
        ("images_per_s", "images per second", "{:,.0f}"),
    ):
        if (value := run.last(key)) is not None:
            numbers.append((label, form.format(value), "the newest"))
    return _notice(run) + cards(numbers)


def _notice(run: Run) -> str:
    heard = run.last("time")
    if heard is None:
        return "<p class='notice'>The run is not finished, and has recorded nothing yet.</p>\n"
    at = datetime.fromtimestamp(heard, UTC).isoformat(timespec="seconds")
    shown = escape(at.replace("T", " ").replace("+00:00", " UTC"))
    return (
        f"<p class='notice'>The run is not finished: it goes on, or was stopped. Last heard of at "
        f"<time datetime='{at}' data-ago>{shown}</time>.</p>\n"
    )
