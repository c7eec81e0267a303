from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from vitkit.cli.args import flag
from vitkit.cli.convert_export import to_runtime
from vitkit.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from vitkit.weights.convert import ConvertReport

Word = Annotated[str | None, arg(metavar="FILE")]
Count = Annotated[int | None, arg(metavar="N")]
Sides = Annotated[int | tuple[int, int] | None, arg(metavar="N")]


@dataclass(frozen=True)
class Convert:
    """Turn weights of any layout into those of another, and measure what that changes."""

    source: Positional[str]
    """A model folder, a run folder or one state in its checkpoints/, a foreign checkpoint or hf-hub:owner/name."""
    out: Positional[str]
    """The folder to write, or a single file that ends in .safetensors or .npz."""
    to: str
    """vitkit, timm, hf, torchvision, dinov2 or npz; onnx or openvino for another runtime."""
    class_names: Word = None
    """A JSON file or one name per line, where the weights bring none."""
    preprocess: Word = None
    """A JSON file of preprocessing settings, where the weights bring none."""
    image_size: Sides = None
    """Adapt to this image size (one number, or height and width)."""
    patch_size: Sides = None
    """Adapt to this patch size."""
    in_channels: Count = None
    """Adapt to this number of channels."""
    num_classes: Count = None
    """A new head for this number of classes."""
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KEY=VALUE")] = field(default=())
    """Say what no tensor shows, such as heads=6 or mlp=quick_gelu; may be given several times."""
    int8: bool = False
    """onnx, openvino: quantize, by the ranges that activations take on real images."""
    calibrate: Annotated[str | None, arg(metavar="DATA")] = None
    """onnx, openvino: the data set to calibrate on and to compare by; the model's own where it is at hand."""
    sizes: Annotated[tuple[str, ...], arg(metavar="N")] = ()
    """onnx, openvino: bake in these image sizes, such as 224,288, one file each."""
    dynamic_size: bool = False
    """onnx, openvino: one file for any image size that the patch divides."""
    with_preprocessing: bool = False
    """onnx, openvino: normalisation and softmax inside: uint8 pixels in, probabilities out."""
    label: Annotated[str | None, arg(metavar="NAME")] = None
    """onnx, openvino: the column of the class, in a CSV or parquet file to calibrate on. (default: as in training)"""
    data_dir: str | None = None
    """onnx, openvino: where named data sets lie; $VITKIT_DATA by default."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.errors import UnknownNameError, UsageError

        if self.to not in TARGETS:
            raise UnknownNameError("target", self.to, TARGETS)
        run = TARGETS[self.to]
        given = [name for name in FOR_RUNTIMES if getattr(self, name)]
        if given and run is not to_runtime:
            raise UsageError(
                f"{flag(given[0])} is for --to onnx and openvino: weights in the layout of {self.to} have none of it"
            )
        return run(self)

    def options(self) -> dict[str, Any]:
        """Those of `load_model`."""
        from vitkit.config import parse_partial
        from vitkit.model import ViTConfig

        return {
            "class_names": self.class_names,
            "preprocess": self.preprocess,
            "config": parse_partial(ViTConfig, self.set),
            "image_size": self.image_size,
            "patch_size": self.patch_size,
            "in_channels": self.in_channels,
            "num_classes": self.num_classes,
        }


def to_weights(command: Convert) -> int:
    from vitkit.training.checkpoint import as_model_dir
    from vitkit.weights.convert import convert

    with as_model_dir(command.source) as source:
        report = convert(source, command.out, command.to, **command.options())
    report = replace(report, read=replace(report.read, source=command.source))
    if command.json:
        print_json({**asdict(report), "read": {**asdict(report.read), "config": report.read.config.to_dict()}})
    else:
        _show(report)
    return 0


FOR_RUNTIMES = ("int8", "calibrate", "sizes", "dynamic_size", "with_preprocessing", "label", "data_dir")

# What each target runs
TARGETS: Mapping[str, Callable[[Convert], int]] = {
    **dict.fromkeys(("vitkit", "timm", "hf", "torchvision", "dinov2", "npz"), to_weights),
    **dict.fromkeys(("onnx", "openvino"), to_runtime),
}


def _show(report: "ConvertReport") -> None:
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
            ["classes", f"{c.num_classes}, from {c.pooling}"],
            ["tensors", f"{r.mapped} read, {len(r.dropped)} dropped, {len(r.filled)} filled with zeros, "
                        f"{report.tensors} written"],
        ],
    )  # fmt: skip
    for kind, lines in (("assumed", r.assumed), ("adapted", r.adapted), ("note", report.notes)):
        for line in lines:
            console().print(f"{kind}: {line}", markup=False)
    for title, names in (("dropped", r.dropped), ("zero", r.filled)):
        for name, why in names.items():
            console().print(f"{title}: {name} ({why})", markup=False)
    print_table(
        "Largest difference of logits on two random images",
        ["compared", "difference", "of a scale of"],
        [
            [d.what, d.note if d.difference is None else f"{d.difference:.1e}", f"{d.scale:.2g}" if d.scale else ""]
            for d in report.differences
        ],
    )
