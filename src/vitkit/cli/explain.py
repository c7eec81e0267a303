import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from vitkit.cli.model import open_model
from vitkit.cli.output import console, print_json, print_table, progress_bar
from vitkit.cli.output_paths import check_output_dir, write_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitkit.explanation import Explanation
    from vitkit.explanation.attention import Query
    from vitkit.explanation.faithfulness import Faithfulness
    from vitkit.model import ViT


@dataclass(frozen=True)
class Explain:
    """Show what a model looks at: a map over each image, how far it can be trusted, and the model's own pictures."""

    model: Positional[str]
    """A model folder, a run folder or a checkpoint."""
    images: Positional[tuple[str, ...]]
    """Image files, folders of them, or patterns."""
    out: str
    """The folder to write the pictures and numbers to."""
    method: str | None = None
    """attention, rollout, gradient, attribution, occlusion or random; gradient by default."""
    layer: int | None = None
    """For attention and rollout: 0 is the first, -1 the last."""
    head: int | None = None
    """For attention: one head instead of their mean."""
    query: str | None = None
    """For attention and rollout, whose: class, mean, or a patch as ROW,COL; what the model pools by default."""
    target: Annotated[str | None, tyro.conf.arg(name="class")] = None
    """For gradient, attribution and occlusion: the class to explain, a name or number; by default the predicted one."""
    size: Annotated[int | None, tyro.conf.arg(metavar="N", aliases=["--image-size"])] = None
    """Explain at another image size than the model's."""
    patches: bool = False
    """Draw the map as the patches it consists of, not smoothly."""
    heads: bool = False
    """Draw the attention of every layer and head of the first image too."""
    faithfulness: bool = False
    """Measure every method on these images: deletion, insertion, randomised weights."""
    model_pictures: bool = False
    """Draw patch filters, position similarity, attention distance, patch features and token lengths too."""
    class_names: str | None = None
    """A JSON file or one name per line, for weights that bring no class names."""
    preprocess: str | None = None
    """A JSON file of preprocessing settings, for weights that bring none."""
    format: Literal["png", "svg", "pdf"] = "png"
    """Of the pictures."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.errors import UsageError
        from vitkit.explanation import DEFAULT, explain
        from vitkit.explanation import plots as draw
        from vitkit.inference import find_images

        if not self.images:
            raise UsageError("no images to explain: vitkit explain MODEL IMAGE … --out DIR")
        query, folder = parse_query(self.query), check_output_dir(self.out)
        paths = find_images(self.images)
        model = open_model(self.model, self.class_names, self.preprocess)
        paths, bad = _readable(model, paths)
        with progress_bar("explaining", quiet=self.json) as progress:
            found = explain(
                model, paths, self.method or DEFAULT, layer=self.layer, head=self.head, query=query,
                target=self.target, image_size=self.size, progress=progress,
            )  # fmt: skip
        figures: dict[str, Figure] = {"sheet": draw.sheet(found, smooth=not self.patches)}
        numbers = dict(found.arrays())
        measured: list[Faithfulness] = []
        if self.heads:
            figures["heads"], numbers["heads"] = _heads(model, paths[0], query, self.size)
        if self.model_pictures:
            _model_pictures(model, paths, self.size, figures, numbers)
        if self.faithfulness:
            from vitkit.explanation.faithfulness import faithfulness

            with progress_bar("measuring", quiet=self.json) as progress:
                measured = faithfulness(model, paths, target=self.target, image_size=self.size, progress=progress)
            figures["faithfulness"] = draw.curves(measured)
            for f in measured:
                numbers[f"{f.method}_deletion"], numbers[f"{f.method}_insertion"] = (
                    f.curves.deletion,
                    f.curves.insertion,
                )
        files = _write(folder, figures, numbers, self.format)
        answer = _answer(self.model, found, measured, files)
        if self.json:
            print_json(answer)
        else:
            _show(answer)
        return 1 if bad else 0


def _readable(model: "ViT", paths: list[Path]) -> tuple[list[Path], int]:
    """Without those that are no images, which are named; how many these are."""
    from vitkit.errors import CorruptImageError, DataError

    if model.info.preprocess is None:
        return paths, 0
    good = []
    for path in paths:
        try:
            model.info.preprocess.check_decodable(path, str(path))
            good.append(path)
        except CorruptImageError as error:
            print(f"vitkit: left out: {error}", file=sys.stderr)
    if not good:
        raise DataError(f"none of {len(paths)} images can be read")
    return good, len(paths) - len(good)


def parse_query(word: str | None) -> "Query | None":
    from vitkit.errors import UsageError

    if word is None or word == "class" or word == "mean":
        return word  # type: ignore[return-value]  # mypy does not narrow str to its literals
    row, comma, column = word.partition(",")
    if not (comma and row.strip().isdigit() and column.strip().isdigit()):
        raise UsageError(f"--query {word!r}: expected class, mean, or a patch as ROW,COL such as 3,7")
    return int(row), int(column)


def _heads(model: "ViT", path: Path, query: "Query | None", size: int | None) -> "tuple[Figure, Any]":
    from vitkit.evaluation.predict import eval_mode
    from vitkit.explanation import attention_maps
    from vitkit.explanation import plots as draw
    from vitkit.inference.image_inputs import prepare_images

    batch, _ = prepare_images(model, [path], size)
    with eval_mode(model):
        maps = attention_maps(model, batch, query=query)[:, 0].cpu().numpy()
    return draw.head_grid(maps, path.name), maps


def _model_pictures(
    model: "ViT", paths: list[Path], size: int | None, figures: "dict[str, Figure]", numbers: dict[str, Any]
) -> None:
    from vitkit.explanation import model_stats as pictures
    from vitkit.explanation import plots_model as draw_model
    from vitkit.inference.image_inputs import prepare_images

    batch, source = prepare_images(model, paths, size)
    components, share = pictures.patch_filters(model)
    figures["filters"], numbers["filters"] = draw_model.filters(components, share), components
    if (alike := pictures.position_similarity(model)) is not None:
        figures["positions"], numbers["positions"] = draw_model.similarity(alike), alike.values
    far = pictures.attention_distance(model, batch)
    longest = float((batch.shape[2] ** 2 + batch.shape[3] ** 2) ** 0.5)
    figures["distance"], numbers["distance"] = draw_model.distances(far, longest, len(batch)), far
    colours, norms = pictures.feature_colours(model, batch), pictures.token_norms(model, batch)
    figures["tokens"] = draw_model.tokens(source, colours, norms)
    numbers["features"], numbers["norms"] = colours, norms


def _write(folder: Path, figures: "dict[str, Figure]", numbers: dict[str, Any], kind: str) -> dict[str, str]:
    import io

    import numpy as np

    from vitkit.atomic import write_atomic
    from vitkit.errors import WorkError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkError(f"cannot make {folder}: {error.strerror}; choose another --out") from error
    files = {name: folder / f"{name}.{kind}" for name in figures} | {"numbers": folder / "explanation.npz"}
    for name, figure in figures.items():
        write_figure(files[name], figure)
    content = io.BytesIO()
    np.savez_compressed(content, **numbers)
    write_atomic(files["numbers"], content.getvalue())
    return {name: str(path) for name, path in files.items()}


def _answer(model: str, found: "Explanation", measured: "list[Faithfulness]", files: dict[str, str]) -> dict[str, Any]:
    from vitkit.explanation.faithfulness import bootstrap

    answer: dict[str, Any] = {
        "model": model,
        "method": found.method,
        "images": [
            {
                "path": name,
                "label": label,
                "score": round(float(score), 6),
                "region": [round(float(edge), 3) for edge in region],
                "strongest_patch": divmod(int(values.argmax()), values.shape[1]),
            }
            for name, label, score, region, values in zip(
                found.images.names, found.labels, found.scores, found.regions, found.maps, strict=True
            )
        ],
        "files": files,
    }
    if measured:
        answer["faithfulness"] = [
            {
                "method": f.method,
                **{
                    key: {"mean": float(values.mean()), "interval": bootstrap(values)}
                    for key, values in (
                        ("deletion", f.curves.deletion_area),
                        ("insertion", f.curves.insertion_area),
                        ("gain", f.curves.gain),
                        ("random_weights", f.sanity),
                    )
                },
            }
            for f in measured
        ]
    return answer


def _show(answer: dict[str, Any]) -> None:
    print_table(
        f"{answer['method']} maps of {len(answer['images'])} images, by {answer['model']}",
        ["image", "class", "score", "strongest patch (row, column)"],
        [
            [i["path"], i["label"], f"{i['score']:.1%}", "{}, {}".format(*i["strongest_patch"])]
            for i in answer["images"]
        ],
    )
    if "faithfulness" in answer:
        print_table(
            "Which map to believe, best first: area under the curves, 95 % interval over images",
            ["method", "deletion (less is better)", "insertion (more is better)", "insertion − deletion",
             "alike with random weights"],
            [[f["method"], *(_cell(f[k]) for k in ("deletion", "insertion", "gain", "random_weights"))]
             for f in answer["faithfulness"]],
        )  # fmt: skip
    for name, path in answer["files"].items():
        console().print(f"{name:13s}{path}", markup=False)


def _cell(value: dict[str, Any]) -> str:
    interval = value["interval"]
    return f"{value['mean']:.3f}" + (f" ({interval[0]:.3f} to {interval[1]:.3f})" if interval else "")
