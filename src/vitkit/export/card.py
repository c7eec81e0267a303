"""The README.md of an export: how to run it, what it takes, how far it is from the model it was made of."""

from collections.abc import Mapping

from vitkit.export.metadata import ExportInfo
from vitkit.export.parity import Parity, Tolerance
from vitkit.model import ViT

RUNTIMES = {"onnx": "ONNX Runtime", "openvino": "OpenVINO"}
TAKES = {
    "images": "`images`, float32 (batch, channels, height, width), normalised → `logits`",
    "pixels": "`pixels`, uint8 (batch, height, width, channels) → `probabilities`, `logits`; normalised inside",
}


def card(
    name: str,
    model: ViT,
    to: str,
    infos: Mapping[str, ExportInfo],
    parities: Mapping[str, Parity],
    tolerance: Tolerance,
) -> str:
    info = next(iter(infos.values()))
    p = info.preprocess
    lines = [
        f"# {name}",
        "",
        f"A Vision Transformer for {RUNTIMES[to]}, {info.precision}, {len(info.class_names):,} classes. "
        "Class names and preprocessing are inside each file.",
        "",
        "```",
        f"vitkit predict {name} photo.jpg" + (f" --size {p.size[0]}" if len(infos) > 1 else ""),
        "```",
        "",
        "## What goes in",
        "",
        f"- {TAKES[info.takes]}",
        "- the batch is free; "
        + (f"height and width are multiples of {_by(info.patch_size)} up to {_by(info.largest)}" if info.any_size
           else "height and width are fixed: " + ", ".join(_by(i.preprocess.size) for i in infos.values())),
        f"- before it, outside of the graph: fit={p.fit}, crop_fraction={p.crop_fraction}, {p.interpolation} resizing, "
        "antialiased, on 8-bit values (Pillow's)",
        f"- normalisation: mean {_numbers(p.mean)}, std {_numbers(p.std)}, of values in 0…1",
        "",
        "## Compared with the torch model",
        "",
        "| file | images | max logit difference | of logits up to | max score difference | top-1 agrees | "
        "top-1 before → after | MB | ms for one image | torch, in turns |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_row(file, parity) for file, parity in parities.items()),
        "",
        f"Tolerance: {_bounds(tolerance)}. Above it, nothing is written.",
        "",
        f"Weights SHA-256 {info.weights_sha256}, vitkit {info.vitkit_version}. "
        f"Licence of the weights: {model.info.license or 'not stated'}.",
        "",
    ]  # fmt: skip
    return "\n".join(lines)


def _row(file: str, p: Parity) -> str:
    tops = "no labels" if p.top1_before is None else f"{p.top1_before:.2%} → {p.top1_after:.2%}"
    agrees = f"{p.agreement:.2%}" + (f" ({p.open_choices} ties)" if p.open_choices else "")
    return (
        f"| {file} | {p.n} ({p.images}) | {p.max_logit_difference:.2g} | {p.largest_logit:.3g} | "
        f"{p.max_score_difference:.2g} | {agrees} | {tops} | {p.size / 1e6:.2f} | {p.ms:.2f} | "
        f"{p.ms_torch:.2f} ({p.speedup:.2f} ×) |"
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
