"""Renders the README.md of an export: how to run it, its input, and its differences from the torch model."""

from collections.abc import Mapping

from vitkit.export.metadata import ExportMetadata
from vitkit.export.parity import Parity, Tolerance
from vitkit.model import ViT

RUNTIMES = {"onnx": "ONNX Runtime", "openvino": "OpenVINO"}
INPUTS = {
    "images": "`images`, float32 (batch, channels, height, width), normalised → `logits`",
    "pixels": "`pixels`, uint8 (batch, height, width, channels) → `probabilities`, `logits`; normalised inside",
}


def render_export_card(
    name: str,
    model: ViT,
    to: str,
    metadata: Mapping[str, ExportMetadata],
    parities: Mapping[str, Parity],
    tolerance: Tolerance,
) -> str:
    """Return the card as Markdown. `metadata` and `parities` are by file name."""
    first = next(iter(metadata.values()))
    p = first.preprocess
    lines = [
        f"# {name}",
        "",
        f"A Vision Transformer for {RUNTIMES[to]}, {first.precision}, {len(first.class_names):,} classes. "
        "Class names and preprocessing are inside each file.",
        "",
        "```",
        f"vitkit predict {name} photo.jpg" + (f" --size {p.size[0]}" if len(metadata) > 1 else ""),
        "```",
        "",
        "## Input",
        "",
        f"- {INPUTS[first.input_kind]}",
        "- the batch size is free; "
        + (f"height and width are multiples of {_by(first.patch_size)} up to {_by(first.max_size)}"
           if first.dynamic_size else
           "height and width are fixed: " + ", ".join(_by(m.preprocess.size) for m in metadata.values())),
        f"- resizing happens outside of the graph: fit={p.fit}, crop_fraction={p.crop_fraction}, {p.interpolation}, "
        "antialiased, on 8-bit values (Pillow)",
        *([f"- values of more than 8 bits: {p.range[0]:g} becomes 0, {p.range[1]:g} becomes 255"] if p.range else []),
        f"- normalisation of values in 0…1: mean {_numbers(p.mean)}, std {_numbers(p.std)}",
        "",
        "## Compared with the torch model",
        "",
        "| file | images | max logit difference | largest logit | max score difference | top-1 agreement | "
        "top-1 in torch → exported | MB | ms for one image | ms in torch |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_row(file, parity) for file, parity in parities.items()),
        "",
        f"Tolerance: {_bounds(tolerance)}. Exports that exceed it are not written.",
        "",
        f"Weights SHA-256 {first.weights_sha256}, vitkit {first.vitkit_version}. "
        f"Licence of the weights: {model.info.license or 'not stated'}.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _row(file: str, p: Parity) -> str:
    tops = "no labels" if p.top1_before is None else f"{p.top1_before:.2%} → {p.top1_after:.2%}"
    agrees = f"{p.agreement:.2%}" + (f" ({p.near_ties} near ties)" if p.near_ties else "")
    speed = f"{p.spread:.1f} × spread, not compared" if p.speedup is None else f"{p.speedup:.2f} ×"
    return (
        f"| {file} | {p.n} ({p.images}) | {p.max_logit_difference:.2g} | {p.largest_logit:.3g} | "
        f"{p.max_score_difference:.2g} | {agrees} | {tops} | {p.size / 1e6:.2f} | {p.ms:.2f} | "
        f"{p.ms_torch:.2f} ({speed}) |"
    )


def _bounds(tolerance: Tolerance) -> str:
    bounds = [
        "" if tolerance.logits is None else f"logits differ by at most {tolerance.logits:g}",
        f"top-1 agrees on at least {tolerance.agreement:.0%}",
        "" if tolerance.accuracy_loss is None else f"top-1 falls by at most {tolerance.accuracy_loss:.0%}",
    ]
    return ", ".join(filter(None, bounds))


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}×{size[1]}"


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{v:g}" for v in values)
