from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from vitkit.cli.args import flag, parse_image_sizes
from vitkit.cli.model_args import print_assumptions
from vitkit.cli.output import JsonOption, console, print_json, print_table
from vitkit.errors import UsageError

if TYPE_CHECKING:
    from vitkit.export.export import ExportResult
    from vitkit.weights.convert import ConvertReport

File = Annotated[str | None, arg(metavar="FILE")]
Count = Annotated[int | None, arg(metavar="N")]
Size = Annotated[int | tuple[int, int] | None, arg(metavar="N")]


@dataclass(frozen=True)
class Convert:
    """Convert weights to another layout or runtime, and measure the difference in logits."""

    source: Positional[str]
    """A model folder, a run folder or one of its checkpoints, a checkpoint of another library, or hf-hub:owner/name."""
    out: Positional[str]
    """The folder to write, or a single file that ends in .safetensors or .npz."""
    to: str
    """The target: vitkit, timm, hf, torchvision, dinov2 or npz for weights, onnx or openvino for a runtime."""
    class_names: File = None
    """Read class names from a JSON file, or one per line, if the weights have none."""
    preprocess: File = None
    """Read preprocessing settings from a JSON file, if the weights have none."""
    image_size: Size = None
    """Adapt the weights to this image size (one number, or height and width)."""
    patch_size: Size = None
    """Adapt the weights to this patch size."""
    in_channels: Count = None
    """Adapt the weights to this number of channels."""
    num_classes: Count = None
    """Replace the head by a new one for this number of classes."""
    architecture: Annotated[str | None, arg(metavar="NAME")] = None
    """Name timm's architecture, such as vit_base_patch16_dinov3, for a file of weights without config.json."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY=VALUE")] = field(default=())
    """Set a config value that the tensors do not show, such as heads=6 or mlp=quick_gelu. Repeatable."""
    int8: bool = False
    """onnx, openvino: quantize to int8, calibrated on real images."""
    calibrate: Annotated[str | None, arg(metavar="DATA")] = None
    """onnx, openvino: calibrate and compare on this data set. (default: the training data, if available)"""
    sizes: Annotated[tuple[str, ...], arg(metavar="N")] = ()
    """onnx, openvino: write one file per fixed image size, such as 224,288."""
    dynamic_size: bool = False
    """onnx, openvino: write one file for all image sizes that the patch size divides."""
    with_preprocessing: bool = False
    """onnx, openvino: include normalisation and softmax: uint8 pixels in, probabilities out."""
    label: Annotated[str | None, arg(metavar="NAME")] = None
    """onnx, openvino: the class column of a CSV or parquet file to calibrate on. (default: as in training)"""
    data_dir: str | None = None
    """onnx, openvino: the folder of built-in data sets. (default: $VITKIT_DATA)"""
    json: JsonOption = False

    def run(self) -> int:
        if self.to not in TARGETS:
            raise UsageError(f"unknown target {self.to!r}; valid targets: {', '.join(TARGETS)}")
        run = TARGETS[self.to]
        given = [name for name in FOR_RUNTIMES if getattr(self, name)]
        if given and run is not to_runtime:
            raise UsageError(f"{flag(given[0])} is for --to onnx and openvino: remove it for --to {self.to}")
        return run(self)

    def load_options(self) -> dict[str, Any]:
        """Return the options of `load_model`."""
        from vitkit.config import parse_partial
        from vitkit.model import ViTConfig

        names = ("class_names", "preprocess", "architecture", "image_size", "patch_size", "in_channels", "num_classes")
        return {"config": parse_partial(ViTConfig, self.set)} | {name: getattr(self, name) for name in names}


def to_weights(command: Convert) -> int:
    from vitkit.training.checkpoint import as_model_dir
    from vitkit.weights.convert import convert

    with as_model_dir(command.source) as source:
        report = convert(source, command.out, command.to, **command.load_options())
    report = replace(report, read=replace(report.read, source=command.source))
    if command.json:
        print_json({**asdict(report), "read": {**asdict(report.read), "config": report.read.config.to_dict()}})
    else:
        _print_conversion(report)
    return 0


def to_runtime(command: Convert) -> int:
    from vitkit.export.export import export_model
    from vitkit.training.checkpoint import as_model_dir
    from vitkit.weights.load import load_with_report

    image_sizes = parse_image_sizes(command.sizes)
    options = {name: getattr(command, name) for name in FOR_RUNTIMES if name != "sizes"}
    given = {name: value for name, value in options.items() if value is not None}
    with as_model_dir(command.source) as source:
        model, report = load_with_report(source, **command.load_options())
    print_assumptions(report)
    result = export_model(model, command.out, command.to, image_sizes=image_sizes, **given)
    if command.json:
        print_json(result.to_dict())
    else:
        _print_export(result, command.source)
    return 0


FOR_RUNTIMES = ("int8", "calibrate", "sizes", "dynamic_size", "with_preprocessing", "label", "data_dir")

TARGETS: Mapping[str, Callable[[Convert], int]] = {
    **dict.fromkeys(("vitkit", "timm", "hf", "torchvision", "dinov2", "npz"), to_weights),
    **dict.fromkeys(("onnx", "openvino"), to_runtime),
}


def _print_conversion(report: "ConvertReport") -> None:
    r, c = report.read, report.read.config
    print_table(
        f"{r.source} → {report.written}",
        ["", ""],
        [
            ["read as", r.layout],
            ["written as", report.layout],
            ["model", f"width {c.width}, {c.depth} blocks, {c.heads} heads, MLP {c.mlp} of {c.mlp_width}"],
            ["images", f"{c.image_size[0]}×{c.image_size[1]}, {c.in_channels} channels, "
                       f"patches of {c.patch_size[0]}×{c.patch_size[1]}"],
            ["classes", f"{c.num_classes}, pooling {c.pooling}"],
            ["tensors", f"{r.mapped} read, {len(r.dropped)} dropped, {len(r.filled)} filled with zeros, "
                        f"{report.tensors} written"],
        ],
    )  # fmt: skip
    for kind, lines in (("assumed", r.assumed), ("adapted", r.adapted), ("note", report.notes)):
        for line in lines:
            console().print(f"{kind}: {line}", markup=False)
    for title, names in (("dropped", r.dropped), ("zero", r.filled)):
        for name, reason in names.items():
            console().print(f"{title}: {name} ({reason})", markup=False)
    print_table(
        "Largest difference in logits on two random images",
        ["compared with", "difference", "largest logit"],
        [
            [d.what, d.note if d.difference is None else f"{d.difference:.1e}", f"{d.scale:.2g}" if d.scale else ""]
            for d in report.differences
        ],
    )


def _print_export(result: "ExportResult", source: str) -> None:
    print_table(
        f"{source} → {result.folder}, run in {result.to}, compared with the torch model",
        ["file", "images", "max logit difference", "top-1 agrees", "top-1 before", "after", "MB", "× torch, 1 image"],
        [
            [name, f"{p.n} ({p.images})", f"{p.max_logit_difference:.1e}", f"{p.agreement:.2%}",
             *("" if top is None else f"{top:.2%}" for top in (p.top1_before, p.top1_after)),
             f"{p.size / 1e6:.2f}", "–" if p.speedup is None else f"{p.speedup:.2f}"]
            for name, p in result.files.items()
        ],
    )  # fmt: skip
