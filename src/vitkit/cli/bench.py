from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import Positional

from vitkit.cli.args import flag
from vitkit.cli.output import console, print_json, print_table
from vitkit.cli.output_paths import check_figure_file
from vitkit.errors import InputError

if TYPE_CHECKING:
    from vitkit.model import ViT


@dataclass(frozen=True)
class Bench:
    """Measure speed and memory, beside other libraries, in one run of interleaved rounds."""

    model: Positional[str]
    """A model name, a model folder, run folder or checkpoint."""
    against: str = "timm"
    """Who else takes part, separated by commas: timm, hf, torchvision, vit-pytorch, tutorial, openvino, onnxruntime."""
    infer: bool = False
    """Time answers; the default."""
    train: bool = False
    """Time training steps instead of answers."""
    load: Annotated[str | None, tyro.conf.arg(metavar="DATA")] = None
    """Time the loader on this data set instead, beside plain Pillow and beside the training step that it feeds."""
    label: str = "label"
    """--load: the column of the class, in a CSV or parquet file."""
    data_dir: str | None = None
    """--load: where named data sets lie; $VITKIT_DATA by default."""
    batch: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N [N …]")] = (8,)
    """Images at a time. Several show how the cost grows."""
    image_size: Annotated[tuple[int, ...], tyro.conf.arg(metavar="PIXELS [PIXELS …]")] = ()
    """Sides of square images instead of the model's own. Several show how the cost grows."""
    rounds: int = 7
    """How often all take turns."""
    no_memory: bool = False
    """Leave out the peak memory, for which every contestant runs in a process of its own."""
    plot: str | None = None
    """Draw images/s over batch or image size into this PNG, SVG or PDF file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.bench.sweep import Setting, draw, sweep
        from vitkit.training.run_dir import describe_environment

        if self.infer + self.train + bool(self.load) > 1:
            raise InputError("--infer, --train and --load measure different things: give one of them")
        if min(self.rounds, *self.batch) < 1:
            raise InputError("--rounds and --batch must be at least 1")
        self._refuse_what_would_be_ignored()
        if self.load:
            return self._load(self.load)
        if self.plot:
            check_figure_file(self.plot, "--plot")
        names = [name.strip() for name in self.against.split(",") if name.strip()]
        settings = [Setting(b, s) for s in (self.image_size or (0,)) for b in self.batch]
        found = sweep(_model(self.model), settings, names, self.train, self.rounds, not self.no_memory)
        if self.plot:
            draw(found.rows, self.plot)
        if self.json:
            print_json(
                {"model": self.model, "rows": found.rows, "missing": found.missing, "machine": describe_environment()}
            )
            return 0
        columns = ["batch", "size", "name", "images/s", "ms", "p95 ms", "×", "of peak", "MiB"]
        lines = [
            [r["batch"], r["image_size"], r["name"], f"{r['images_per_s']:,.1f}", f"{r['ms']:,.1f}",
             f"{r['p95_ms']:,.1f}", f"{r['ratio']:.2f}", f"{r['peak_share']:.0%}",
             f"{r['memory_mib']:,.0f}" if r["memory_mib"] else ""]
            for r in found.rows
        ]  # fmt: skip
        what = "training steps" if self.train else "answers"
        print_table(f"{self.model}: {what}, medians of {self.rounds} interleaved rounds", columns, lines)
        for name, why in found.missing.items():
            console().print(f"{name} did not take part: {why}", markup=False)
        return 0

    def _refuse_what_would_be_ignored(self) -> None:
        others = ("label", "data_dir") if not self.load else ("against", "image_size", "no_memory", "plot")
        given = [name for name in others if getattr(self, name) != getattr(Bench, name)]
        if self.load and len(self.batch) > 1:
            raise InputError("--load takes one --batch")
        if given:
            when = "with --load" if self.load else "without --load"
            raise InputError(f"{flag(given[0])} has no effect {when}: leave it out")

    def _load(self, data: str) -> int:
        from vitkit.bench.loading import loading
        from vitkit.data.open import open_data
        from vitkit.training.run_dir import describe_environment

        splits = open_data(data, label=self.label, data_dir=self.data_dir).splits
        split = splits.get("train") or next(iter(splits.values()))
        rows = loading(split, _model(self.model).config, self.batch[0], rounds=self.rounds)
        if self.json:
            shown = [row.to_dict() for row in rows]
            print_json({"model": self.model, "data": data, "rows": shown, "machine": describe_environment()})
            return 0
        lines = [[r.name, f"{r.images_per_s:,.1f}", f"{r.ms:,.1f}", f"{r.p95_ms:,.1f}", f"{r.ratio:.2f}"] for r in rows]
        title = f"{data} for {self.model}, batches of {self.batch[0]}: medians of {self.rounds} interleaved rounds"
        print_table(title, ["what", "images/s", "ms", "p95 ms", "×"], lines)
        return 0


def _model(name: str) -> "ViT":
    from pathlib import Path

    from vitkit.model import create_model
    from vitkit.model.variants import VARIANTS
    from vitkit.weights.load import load_model

    return create_model(name) if name in VARIANTS and not Path(name).exists() else load_model(name)
