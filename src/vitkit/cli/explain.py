import gc
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from vitkit.cli.model_args import open_model
from vitkit.cli.output import JsonOption, console, print_json, print_table, printable, progress_bar
from vitkit.cli.output_paths import check_output_dir, write_figure
from vitkit.errors import CorruptImageError, DataError, UsageError, WorkError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitkit.explanation import Explanation
    from vitkit.explanation.attention import Query
    from vitkit.explanation.faithfulness import Faithfulness
    from vitkit.model import ViT

IMAGES_PER_SHEET = 48  # explained and drawn at once: more images get further sheets


@dataclass(frozen=True)
class Explain:
    """Explain predictions: draw attention or relevance maps over images and measure their faithfulness."""

    model: Positional[str]
    """A model folder, a run folder or a checkpoint."""
    images: Positional[tuple[str, ...]]
    """Image files, folders of images, or patterns."""
    out: str
    """Folder for the figures and the .npz file."""
    method: str | None = None
    """attention, rollout, gradient (default), attribution, occlusion or random."""
    layer: int | None = None
    """Layer, for attention and rollout: 0 is the first, -1 the last."""
    head: int | None = None
    """Head, for attention. The default is the mean of all heads."""
    query: str | None = None
    """Query token, for attention and rollout: class, mean, or a patch as ROW,COL. By default what the model pools."""
    target: Annotated[str | None, tyro.conf.arg(name="class")] = None
    """Class name or index to explain, for gradient, attribution and occlusion. The default is the predicted class."""
    size: Annotated[int | None, tyro.conf.arg(metavar="N", aliases=["--image-size"])] = None
    """Image size. The default is the model's."""
    patches: bool = False
    """Draw the patches of each map without interpolation."""
    heads: bool = False
    """Also draw the attention of every layer and head for the first image."""
    faithfulness: bool = False
    """Measure all methods on these images: deletion, insertion, correlation with shuffled weights."""
    model_pictures: bool = False
    """Also draw patch filters, position similarity, and attention distance, patch features and token norms of the first
    48 images."""
    class_names: str | None = None
    """File of class names, as JSON or one per line, for weights without class names."""
    preprocess: str | None = None
    """JSON file of preprocessing settings, for weights without preprocessing settings."""
    format: Literal["png", "svg", "pdf"] = "png"
    """File format of the figures."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.explanation import DEFAULT_METHOD, explain, plots
        from vitkit.explanation.methods import check_options, parse_query
        from vitkit.explanation.npz_parts import NpzParts
        from vitkit.inference import find_images

        if not self.images:
            raise UsageError("no images to explain: vitkit explain MODEL IMAGE … --out DIR")
        query, folder = parse_query(self.query, "--query"), check_output_dir(self.out)
        model, method = open_model(self.model, self.class_names, self.preprocess), self.method or DEFAULT_METHOD
        options: dict[str, Any] = dict(layer=self.layer, head=self.head, query=query, target=self.target)
        check_options(method, model, options)
        paths = find_images(self.images)
        numbers, files = NpzParts(folder / "explanation.npz"), dict[str, str]()
        rows, good = list[list[dict[str, Any]]](), list[Path]()
        with progress_bar("explaining", quiet=self.json) as progress:
            for start in range(0, len(paths), IMAGES_PER_SHEET):
                readable = _readable(model, paths[start : start + IMAGES_PER_SHEET])
                if readable:
                    found = explain(model, readable, method, image_size=self.size, seed=start, **options)
                    number = start // IMAGES_PER_SHEET + 1
                    figure = plots.plot_maps(found, smooth=not self.patches)
                    files |= _write_figures(folder, {f"sheet_{number}" if start else "sheet": figure}, self.format)
                    numbers.append(found.arrays())
                    rows.append(_rows(found))
                    good += readable
                    if not self.json:
                        _print_rows(f"{method} maps of {len(readable)} images by {self.model}", rows[-1])
                    del found, figure
                    gc.collect()  # figures are reference cycles
                progress(min(start + IMAGES_PER_SHEET, len(paths)), len(paths))
        if not good:
            raise DataError(f"none of {len(paths)} images can be read")
        figures: dict[str, Figure] = {}
        arrays: dict[str, Any] = {}
        measured: list[Faithfulness] = []
        if self.heads:
            figures["heads"], arrays["heads"] = _heads(model, good[0], query, self.size)
        if self.model_pictures:
            _model_stats(model, good[:IMAGES_PER_SHEET], self.size, figures, arrays)
        if self.faithfulness:
            from vitkit.explanation.faithfulness import faithfulness

            with progress_bar("measuring", quiet=self.json) as progress:
                measured = faithfulness(model, good, target=self.target, image_size=self.size, progress=progress)
            figures["faithfulness"] = plots.plot_faithfulness(measured)
            for f in measured:
                arrays[f"{f.method}_deletion"] = f.curves.deletion
                arrays[f"{f.method}_insertion"] = f.curves.insertion
        files |= _write_figures(folder, figures, self.format) | {"numbers": str(numbers.path)}
        numbers.finish(arrays)
        document = _document(self.model, method, [row for some in rows for row in some], measured, files)
        if self.json:
            print_json(document)
        else:
            _print_summary(document)
        return 1 if len(good) < len(paths) else 0


def _readable(model: "ViT", paths: list[Path]) -> list[Path]:
    """Return the images that can be read; name the others on stderr."""
    if model.info.preprocess is None:
        return paths
    good = []
    for path in paths:
        try:
            model.info.preprocess.check_decodable(path, str(path))
            good.append(path)
        except CorruptImageError as error:
            print(f"vitkit: skipped: {printable(str(error))}", file=sys.stderr)
    return good


def _heads(model: "ViT", path: Path, query: "Query | None", size: int | None) -> "tuple[Figure, Any]":
    from vitkit.evaluation.predict import eval_mode
    from vitkit.explanation import attention_maps, plots
    from vitkit.inference.image_inputs import prepare_images

    batch, _ = prepare_images(model, [path], size)
    with eval_mode(model):
        maps = attention_maps(model, batch, query=query)[:, 0].cpu().numpy()
    return plots.plot_heads(maps, path.name), maps


def _model_stats(
    model: "ViT", paths: list[Path], size: int | None, figures: "dict[str, Figure]", arrays: dict[str, Any]
) -> None:
    from vitkit.explanation import model_stats, plots
    from vitkit.inference.image_inputs import prepare_images

    batch, source = prepare_images(model, paths, size)
    components, share = model_stats.patch_filters(model)
    figures["filters"], arrays["filters"] = plots.plot_filters(components, share), components
    if (similarity := model_stats.position_similarity(model)) is not None:
        figures["positions"], arrays["positions"] = plots.plot_position_similarity(similarity), similarity.values
    distance = model_stats.attention_distance(model, batch)
    diagonal = float((batch.shape[2] ** 2 + batch.shape[3] ** 2) ** 0.5)
    figures["distance"] = plots.plot_attention_distance(distance, diagonal, len(batch))
    features, norms = model_stats.feature_pca(model, batch), model_stats.token_norms(model, batch)
    figures["tokens"] = plots.plot_tokens(source, features, norms)
    arrays |= {"distance": distance, "features": features, "norms": norms}


def _write_figures(folder: Path, figures: "dict[str, Figure]", kind: str) -> dict[str, str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkError(f"cannot create {folder}: {error.strerror}; choose another --out") from error
    files = {name: folder / f"{name}.{kind}" for name in figures}
    for name, figure in figures.items():
        write_figure(files[name], figure)
    return {name: str(path) for name, path in files.items()}


def _rows(found: "Explanation") -> list[dict[str, Any]]:
    """Return one entry of the JSON document per image."""
    return [
        {
            "path": name,
            "label": label,
            "index": int(target),
            "score": round(float(score), 6),
            "region": [round(float(edge), 3) for edge in region],
            "strongest_patch": divmod(int(values.argmax()), values.shape[1]),
        }
        for name, label, target, score, region, values in zip(
            found.images.names, found.labels, found.targets, found.scores, found.regions, found.maps, strict=True
        )
    ]


def _document(
    model: str, method: str, images: list[dict[str, Any]], measured: "list[Faithfulness]", files: dict[str, str]
) -> dict[str, Any]:
    document: dict[str, Any] = {"model": model, "method": method, "images": images, "files": files}
    if measured:
        document["faithfulness"] = [
            {"method": f.method, **{k: {"mean": m, "interval": interval} for k, (m, interval) in f.summary().items()}}
            for f in measured
        ]
    return document


def _print_rows(title: str, rows: list[dict[str, Any]]) -> None:
    print_table(
        title,
        ["image", "class", "score", "strongest patch (row, column)"],
        [[i["path"], i["label"], f"{i['score']:.1%}", "{}, {}".format(*i["strongest_patch"])] for i in rows],
    )


def _print_summary(document: dict[str, Any]) -> None:
    if "faithfulness" in document:
        print_table(
            "Faithfulness of the methods, best first: mean over images (95 % interval)",
            ["method", "deletion area ↓", "insertion area ↑", "insertion − deletion ↑",
             "correlation, shuffled weights"],
            [[f["method"], *(_cell(f[k]) for k in ("deletion", "insertion", "gain", "random_weights"))]
             for f in document["faithfulness"]],
        )  # fmt: skip
    for name, path in document["files"].items():
        console().print(f"{name:13s}{path}", markup=False)


def _cell(value: dict[str, Any]) -> str:
    interval = value["interval"]
    return f"{value['mean']:.3f}" + (f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else "")
