from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from tyro.conf import Positional

from vitkit.cli.args import flag
from vitkit.cli.output import JsonOption, console, print_json, print_table
from vitkit.cli.output_paths import check_figure_file
from vitkit.errors import InputError

if TYPE_CHECKING:
    from vitkit.model import ViT


@dataclass(frozen=True)
class Bench:
    """Compare speed and memory with other libraries, in interleaved rounds of one run."""

    model: Positional[str]
    """Model name, model folder, run folder or checkpoint."""
    against: str = "timm"
    """Comma-separated competitors: timm, hf, torchvision, vit-pytorch, tutorial, openvino, onnxruntime."""
    infer: bool = False
    """Time inference (default)."""
    train: bool = False
    """Time training steps instead of inference."""
    load: Annotated[str | None, tyro.conf.arg(metavar="DATA")] = None
    """Time data loading from this data set instead, compared with plain Pillow and a training step."""
    label: str = "label"
    """--load: label column of a CSV or parquet file."""
    data_dir: str | None = None
    """--load: folder of built-in data sets (default: $VITKIT_DATA)."""
    batch: Annotated[tuple[int, ...], tyro.conf.arg(metavar="N [N …]")] = (8,)
    """Batch sizes. Several of them show how the cost grows."""
    image_size: Annotated[tuple[int, ...], tyro.conf.arg(metavar="PIXELS [PIXELS …]")] = ()
    """Image sizes instead of the model's own. Several of them show how the cost grows."""
    rounds: int = 7
    """Number of interleaved rounds."""
    no_memory: bool = False
    """Skip peak memory, which needs a separate process per competitor."""
    plot: str | None = None
    """Plot images/s over batch or image size to this PNG, SVG or PDF file."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.bench.sweep import plot_sweep, run_sweep
        from vitkit.training.run_dir import describe_environment

        if self.infer + self.train + bool(self.load) > 1:
            raise InputError("--infer, --train and --load exclude each other: give one of them")
        if min(self.rounds, *self.batch) < 1:
            raise InputError("--rounds and --batch must be at least 1")
        self._check_unused_options()
        if self.load:
            return self._load(self.load)
        if self.plot:
            check_figure_file(self.plot, "--plot")
        names = [name.strip() for name in self.against.split(",") if name.strip()]
        points = [(b, s) for s in (self.image_size or (0,)) for b in self.batch]
        found = run_sweep(_open_model(self.model), points, names, self.train, self.rounds, not self.no_memory)
        if self.plot:
            plot_sweep(found.rows, self.plot)
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
        what = "training steps" if self.train else "inference"
        print_table(f"{self.model}: {what}, medians of {self.rounds} interleaved rounds", columns, lines)
        for name, reason in found.missing.items():
            console().print(f"{name} is not available: {reason}", markup=False)
        return 0

    def _check_unused_options(self) -> None:
        others = ("label", "data_dir") if not self.load else ("against", "image_size", "no_memory", "plot")
        given = [name for name in others if getattr(self, name) != getattr(Bench, name)]
        if self.load and len(self.batch) > 1:
            raise InputError("--load takes one --batch")
        if given:
            when = "with --load" if self.load else "without --load"
            raise InputError(f"{flag(given[0])} has no effect {when}: leave it out")

    def _load(self, data: str) -> int:
        from vitkit.bench import bench_loading
        from vitkit.data.open import open_data
        from vitkit.training.run_dir import describe_environment

        splits = open_data(data, label=self.label, data_dir=self.data_dir).splits
        split = splits.get("train") or next(iter(splits.values()))
        rows = bench_loading(split, _open_model(self.model).config, self.batch[0], rounds=self.rounds)
        if self.json:
            shown = [row.to_dict() for row in rows]
            print_json({"model": self.model, "data": data, "rows": shown, "machine": describe_environment()})
            return 0
        lines = [[r.name, f"{r.images_per_s:,.1f}", f"{r.ms:,.1f}", f"{r.p95_ms:,.1f}", f"{r.ratio:.2f}"] for r in rows]
        title = f"{data} for {self.model}, batches of {self.batch[0]}: medians of {self.rounds} interleaved rounds"
        print_table(title, ["source", "images/s", "ms", "p95 ms", "×"], lines)
        return 0


def _open_model(name: str) -> "ViT":
    from vitkit.model import create_model
    from vitkit.model.variants import VARIANTS
    from vitkit.weights.load import load_model

    return create_model(name) if name in VARIANTS and not Path(name).exists() else load_model(name)
