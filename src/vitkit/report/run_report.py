"""The report of one run."""

import json
import shlex
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from vitkit.report.accuracy import performance_section
from vitkit.report.curves import learning_curves
from vitkit.report.data_card import data_section
from vitkit.report.examples import explanations_section, mistakes_section
from vitkit.report.faithfulness import faithfulness_table
from vitkit.report.html import cards, code, details, duration, facts, header, page, section
from vitkit.report.model_internals import model_section
from vitkit.report.run_assets import open_assets
from vitkit.report.run_record import RunRecord

UNFINISHED = ("Learning curves", "Data set", "Reproduce")  # sections of a run that is not finished
FINISHED = (
    "Learning curves", "Performance", "Most confident mistakes", "Explanations", "Data set", "Model internals",
    "Reproduce",
)  # fmt: skip


def run_page(run: RunRecord) -> str:
    """Return the complete page; for an unfinished run, the sections that are available so far."""
    assets = open_assets(run)
    body = [_summary(run), section("Learning curves", learning_curves(run))]
    if run.evaluation is not None:
        body += [
            performance_section(run.evaluation, run.split),
            mistakes_section(assets, run.evaluation),
            explanations_section(assets, run.evaluation, faithfulness_table(assets, run.evaluation)),
        ]
    body.append(data_section(assets))
    if assets.model is not None:
        body.append(model_section(assets, run.evaluation))
    body.append(section("Reproduce", reproduction(run)))
    return page(f"vitkit: {_title(run)}", [_header(run, FINISHED if run.result else UNFINISHED), *body])


def live_page(run: RunRecord, refresh: int) -> str:
    """Return the page of a run in progress. It is cheap: neither data nor model is opened."""
    body = [
        _header(run, ("Learning curves", "Reproduce")),
        _summary(run),
        section("Learning curves", learning_curves(run)),
        section("Reproduce", reproduction(run)),
    ]
    return page(f"vitkit: {_title(run)}", body, refresh)


def reproduction(run: RunRecord) -> str:
    """Return the command, the same in Python, the recipe and the environment."""
    environment = [
        (k, ", ".join(f"{a} {b}" for a, b in v.items()) if isinstance(v, dict) else v)
        for k, v in run.environment.items()
    ]
    python = (
        "import json, vitkit\n"
        f"recipe = vitkit.Recipe.from_dict(json.load(open({str(run.folder / 'recipe.json')!r}, encoding='utf-8')))\n"
        'vitkit.train(recipe, out="again")'
    )
    return (
        code(command(run))
        + details("In Python", code(python))
        + details("Recipe", code(json.dumps(run.recipe.to_dict(), indent=2)))
        + details("Environment", facts(environment))
    )


def command(run: RunRecord) -> str:
    """Return the command line of the run without the path of the program."""
    try:
        program, *rest = shlex.split(str(run.environment.get("command", "")))
    except ValueError:  # empty, or not a shell command
        return ""
    name = Path(program).name
    return shlex.join(["vitkit" if name == "__main__.py" else name, *rest])


def _title(run: RunRecord) -> str:
    return f"{_file_name(run.recipe.data)}: {_file_name(run.model)}"


def _header(run: RunRecord, sections: tuple[str, ...]) -> str:
    return header(_title(run), f"run {run.name}, seed {run.recipe.seed}", sections)


def _file_name(path: str) -> str:
    """Return the last part of a path; names of data sets and models stay as they are."""
    return path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _summary(run: RunRecord) -> str:
    return _final_numbers(run.result) if run.result else _latest_numbers(run)


def _final_numbers(result: dict[str, Any]) -> str:
    numbers = []
    for name, label in (("test", "test accuracy"), ("val", "validation accuracy")):
        if result[name]:
            low, high = result[name]["top1_interval"]
            note = f"95 % interval {low:.1%} to {high:.1%}, {result[name]['n']:,} images"
            numbers.append((label, f"{result[name]['top1']:.2%}", note))
    measured = result["test"] or result["val"]
    numbers += [
        ("calibration error (ECE)", f"{measured['ece']:.3f}", "0 is perfect"),
        ("parameters", f"{result['parameters'] / 1e6:.2f} M", f"{result['steps']:,} steps"),
        ("time", duration(result["seconds"]), f"{result['epochs']:.4g} epochs"),
    ]
    return cards(numbers)


def _latest_numbers(run: RunRecord) -> str:
    epoch, budget = run.last("epoch"), run.recipe.budget
    planned = f"planned: {budget.minutes:g} min" if budget.minutes else f"of {budget.epochs:g}"
    numbers = [("epochs", "0" if epoch is None else f"{epoch:.4g}", planned)]
    for key, label, form in (
        ("val_top1", "validation accuracy", "{:.2%}"),
        ("val_loss", "validation loss", "{:.4f}"),
        ("loss", "training loss", "{:.4f}"),
        ("images_per_s", "images per second", "{:,.0f}"),
    ):
        if (value := run.last(key)) is not None:
            numbers.append((label, form.format(value), "latest value"))
    return _notice(run) + cards(numbers)


def _notice(run: RunRecord) -> str:
    updated = run.last("time")
    if updated is None:
        return "<p class='notice'>The run is not finished and has logged nothing yet.</p>\n"
    at = datetime.fromtimestamp(updated, UTC).isoformat(timespec="seconds")
    shown = escape(at.replace("T", " ").replace("+00:00", " UTC"))
    return (
        "<p class='notice'>The run is not finished: it is in progress or was stopped. Last update: "
        f"<time datetime='{at}' data-ago>{shown}</time>.</p>\n"
    )
