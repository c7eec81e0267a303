"""`vitkit convert … --to onnx|openvino`: the targets that are graphs for a runtime, not weights in a layout."""

from typing import TYPE_CHECKING, Any

from vitkit.cli.args import parse_image_sizes
from vitkit.cli.model import print_assumptions
from vitkit.cli.output import print_json, print_table

if TYPE_CHECKING:
    from vitkit.cli.convert import Convert
    from vitkit.export import ExportResult


def to_runtime(command: "Convert") -> int:
    from vitkit.export import export_model
    from vitkit.training.checkpoint import as_model_dir
    from vitkit.weights.load import load_with_report

    sizes = parse_image_sizes(command.sizes)
    opening: dict[str, Any] = {"label": command.label, "data_dir": command.data_dir}
    with as_model_dir(command.source) as source:
        model, report = load_with_report(source, **command.options())
    print_assumptions(report)
    done = export_model(
        model,
        command.out,
        command.to,
        int8=command.int8,
        calibrate=command.calibrate,
        image_sizes=sizes,
        dynamic_size=command.dynamic_size,
        with_preprocessing=command.with_preprocessing,
        **{key: value for key, value in opening.items() if value is not None},
    )
    if command.json:
        print_json(done.to_dict())
    else:
        _show(done, command.source)
    return 0


def _show(done: "ExportResult", source: str) -> None:
    print_table(
        f"{source} → {done.folder}, run in {done.to} beside the torch model",
        ["file", "images", "max logit difference", "top-1 agrees", "top-1 before", "after", "MB", "× torch, 1 image"],
        [
            [name, f"{p.n} ({p.images})", f"{p.max_logit_difference:.1e}", f"{p.agreement:.2%}",
             *("" if top is None else f"{top:.2%}" for top in (p.top1_before, p.top1_after)),
             f"{p.size / 1e6:.2f}", f"{p.speedup:.2f}"]
            for name, p in done.files.items()
        ],
    )  # fmt: skip
