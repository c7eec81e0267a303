"""What a run folder has to tell, in the order in which one asks."""

import json
from html import escape
from pathlib import Path
from typing import Any

import torch

from vitkit.errors import UsageError, VitkitError
from vitkit.evaluate import Evaluation, evaluate_predictions, plot_classes, plot_confusion, plot_reliability
from vitkit.evaluate.saved import load_predictions
from vitkit.explain import attention_map, whose_attention
from vitkit.files import write_atomic
from vitkit.model.summary import summarize
from vitkit.report import figures
from vitkit.report.page import cards, code, details, facts, figure, page, section, table, text
from vitkit.train import Recipe
from vitkit.train.run_folder import read_recipe
from vitkit.train.setup import open_dataset
from vitkit.weights.folder import load_model


def write_report(run: str | Path, out: str | Path | None = None) -> Path:
    """One HTML file for the run, `report.html` in its folder unless `out` says otherwise."""
    folder = Path(run)
    if not (folder / "result.json").is_file():
        raise UsageError(f"{folder} is not a finished run: `vitkit train` writes result.json at its end")
    result, environment = (json.loads((folder / name).read_text()) for name in ("result.json", "environment.json"))
    recipe = read_recipe(folder)
    model = recipe.model or recipe.init  # fine-tuned weights bring their own architecture
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    held_out = "test" if result["test"] else "val"
    evaluation = evaluate_predictions(load_predictions(folder / f"predictions-{held_out}.safetensors"))
    body = [
        f"<header><h1>{escape(recipe.data)}: {escape(model)}</h1></header>\n",
        _summary(result),
        section("Learning curves", figure(figures.curves(metrics), "Training and validation over the epochs")),
        _examples(folder, recipe, evaluation),
        _errors(evaluation, held_out),
        _model(folder),
        _repeat(recipe, environment),
    ]
    path = Path(out) if out else folder / "report.html"
    write_atomic(path, page(f"vitkit: {model} on {recipe.data}", body).encode())
    return path


def _summary(result: dict[str, Any]) -> str:
    numbers = []
    for name, label in (("test", "test accuracy"), ("val", "validation accuracy")):
        if result[name]:
            low, high = result[name]["top1_interval"]
            remark = f"{result[name]['n']:,} images; 95 %: {low:.1%} to {high:.1%}"
            numbers.append((label, f"{result[name]['top1']:.2%}", remark))
    numbers += [
        ("parameters", f"{result['parameters'] / 1e6:.2f} M", f"{result['steps']:,} steps"),
        ("time", _duration(result["seconds"]), f"{result['epochs']:.4g} epochs"),
    ]
    return cards(numbers)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _examples(folder: Path, recipe: Recipe, evaluation: Evaluation, count: int = 8) -> str:
    """Held-out images with the model's answer and its attention."""
    model = load_model(folder)
    names, preprocess = model.info.class_names, model.info.preprocess
    try:
        data = open_dataset(recipe)
    except VitkitError as error:
        return section("What it looks at", text(f"The data could not be opened again, so no examples: {error}"))
    split = data.splits.get("test", data.splits["val"])
    places = {split.images.name(i): i for i in range(len(split))}
    readable = [places[name] for name in evaluation.predictions.names or () if name in places]
    if not readable:
        return section("What it looks at", text("The data has changed since the run, so no examples."))
    shown = min(count, len(readable))
    rows = [readable[i * len(readable) // shown] for i in range(shown)]
    pixels = torch.stack([preprocess(split.images[i], split.images.name(i)) for i in rows])
    with torch.inference_mode():
        images = preprocess.normalize(pixels)
        scores, best = model(images).softmax(dim=-1).max(dim=-1)
        maps = attention_map(model, images)
    truth = [int(split.labels[i]) for i in rows]
    titles = [f"{names[p]} {s:.0%}" for p, s in zip(best.tolist(), scores.tolist(), strict=True)]
    right = [p == t for p, t in zip(best.tolist(), truth, strict=True)]
    sheet = figures.attention_sheet(list(pixels.permute(0, 2, 3, 1).numpy()), maps.numpy(), titles, right)
    answers = table(
        ["image", "is", "predicted", "score"],
        [[split.images.name(i), names[t], names[p], round(s, 4)]
         for i, t, p, s in zip(rows, truth, best.tolist(), scores.tolist(), strict=True)],
    )  # fmt: skip
    caption = (
        f"Held-out images and the attention of the last layer, {whose_attention(model)}: exact softmax weights, "
        "brighter is more"
    )
    return section("What it looks at", figure(sheet, caption, pixels=True), details("The answers as a table", answers))


def _errors(evaluation: Evaluation, split: str) -> str:
    return section(
        f"Where it errs ({split} split)",
        figure(plot_confusion(evaluation), "Confusion matrix: rows are the truth, columns the prediction"),
        figure(plot_classes(evaluation), "Per class"),
        figure(plot_reliability(evaluation), f"Reliability; expected calibration error {evaluation.ece:.3f}"),
    )


def _model(folder: Path) -> str:
    rows = summarize(load_model(folder).config, depth=2)
    lines = [[r.path or "(model)", r.kind, " × ".join(map(str, r.shape[1:])), r.parameters, r.macs] for r in rows]
    return section(
        "The model", details("Layer by layer", table(["layer", "kind", "output", "parameters", "MACs"], lines))
    )


def _repeat(recipe: Recipe, environment: dict[str, Any]) -> str:
    values = [
        (k, v if not isinstance(v, dict) else ", ".join(f"{a} {b}" for a, b in v.items()))
        for k, v in environment.items()
    ]
    return section(
        "To repeat it",
        code(environment["command"]),
        details("Recipe", code(json.dumps(recipe.to_dict(), indent=2))),
        details("Environment", facts(values)),
    )
