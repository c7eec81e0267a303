import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from vitkit.cli.model_args import open_model
from vitkit.cli.output import JsonOption, csv_cell, json_text, printable, progress_bar
from vitkit.cli.output_paths import check_output_file
from vitkit.errors import ConfigError, CorruptImageError, UsageError

if TYPE_CHECKING:
    from vitkit.inference import Prediction, Predictor
    from vitkit.model import ViT

Write = Callable[[str, "list[Prediction]"], None]


@dataclass(frozen=True)
class Predict:
    """Predict the labels of images, ranked by score, and print them as they are computed."""

    model: Positional[str]
    """Model folder, run folder, checkpoint, or an export for ONNX Runtime or OpenVINO."""
    images: Positional[tuple[str, ...]]
    """Image files, folders or glob patterns. - reads one image from standard input."""
    top: int = 5
    """Number of labels per image."""
    batch: Literal["auto"] | int = "auto"
    """Batch size."""
    engine: str = "auto"
    """Engine: eager, compiled, openvino or onnx. auto chooses by the number of images."""
    size: Annotated[int | None, arg(metavar="N", aliases=["--image-size"])] = None
    """Image size instead of the model's own. Selects the file of an export with several sizes."""
    class_names: str | None = None
    """JSON file, or text file with one name per line, for weights without class names."""
    preprocess: str | None = None
    """JSON file of preprocessing settings, for weights without them."""
    csv: str | None = None
    """Write one row per image to this CSV file."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.inference import Predictor, find_images

        if self.json and self.csv:
            raise ConfigError("--json and --csv exclude each other: choose one")
        if self.top < 1 or (self.batch != "auto" and self.batch < 1):
            raise ConfigError(f"--top {self.top}, --batch {self.batch}: must be at least 1")
        if not self.images:
            raise ConfigError("no images given: vitkit predict MODEL IMAGE …")
        if self.csv:
            check_output_file(self.csv, "--csv")
        paths = find_images(self.images)
        predictor = Predictor(
            self._open(),
            self.engine,
            expected_images=len(paths),
            batch_size=None if self.batch == "auto" else self.batch,
            image_size=self.size,
        )
        print(f"vitkit: engine {predictor.engine_description}", file=sys.stderr)
        bad = 0
        with self._writer(paths, predictor) as write, progress_bar("predicting", quiet=len(paths) == 1) as progress:
            inputs = [_standard_input() if str(path) == "-" else path for path in paths]
            for done, (path, found) in enumerate(zip(paths, predictor.stream(inputs, self.top), strict=True), start=1):
                if isinstance(found, CorruptImageError):
                    bad += 1
                    reason = f"-: {found.reason}" if str(path) == "-" else str(found)
                    print(f"vitkit: skipped: {printable(reason)}", file=sys.stderr)
                else:
                    write(str(path), found)
                progress(done, len(paths))
        if bad:
            print(f"vitkit: {bad} of {len(paths)} images could not be read", file=sys.stderr)
        return 1 if bad else 0

    def _open(self) -> "str | ViT":
        """Return the path of an export, or the loaded model after its assumptions are printed."""
        from vitkit.export.metadata import find_exported
        from vitkit.runtime.device import select_device

        if find_exported(self.model, self.size) is not None:
            if self.class_names or self.preprocess:
                raise UsageError(
                    f"{self.model} is an export with its own class names and preprocessing: "
                    "remove --class-names and --preprocess"
                )
            return self.model
        return open_model(self.model, self.class_names, self.preprocess, select_device("auto"))

    @contextmanager
    def _writer(self, paths: Sequence[Path], predictor: "Predictor") -> Iterator[Write]:
        top = min(self.top, len(predictor.class_names))
        if self.json:
            with _json_list() as write:
                yield write
        elif self.csv:
            with open(self.csv, "w", newline="", encoding="utf-8", errors="backslashreplace") as file:
                rows = csv.writer(file)
                columns = [f"{what}_{k + 1}" for k in range(top) for what in ("label", "score")]
                rows.writerow(["path", *columns, *(f"index_{k + 1}" for k in range(top))])
                yield lambda path, found: rows.writerow(
                    [
                        csv_cell(path),
                        *(x for p in found for x in (csv_cell(p.label), p.score)),
                        *(p.index for p in found),
                    ]
                )
        else:
            yield _table_writer(paths, predictor.class_names)


def _standard_input() -> bytes:
    return sys.stdin.buffer.read() if sys.stdin else b""  # None if the process was started without one


@contextmanager
def _json_list() -> Iterator[Write]:
    """Print a JSON list, one element at a time."""
    first = True

    def write(path: str, found: "list[Prediction]") -> None:
        nonlocal first
        entry: dict[str, Any] = {"path": path, "predictions": [asdict(p) for p in found]}
        print("[" if first else ",", json_text(entry), sep="\n" if not first else "", flush=True)
        first = False

    yield write
    print("[]" if first else "]")


def _table_writer(paths: Sequence[Path], class_names: Sequence[str]) -> Write:
    """Print the header of a table, and return a function that prints a row. Column widths are known in advance."""
    image = max(5, *(len(printable(str(path))) for path in paths))
    label = min(max(len("prediction"), *(len(printable(name)) for name in class_names)), 32)
    print(f"{'image':{image}}  {'prediction':{label}}   score  alternatives")

    def write(path: str, found: "list[Prediction]") -> None:
        best, *others = found
        rest = printable(", ".join(f"{p.label} {p.score:.1%}" for p in others))
        name, first = printable(path), printable(best.label)
        print(f"{name:{image}}  {first:{label}}  {best.score:6.1%}  {rest}".rstrip(), flush=True)

    return write
