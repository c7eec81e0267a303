"""From any layout to any other, with the difference in logits that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitkit.errors import WeightsError
from vitkit.model import ViT
from vitkit.weights import hub
from vitkit.weights.load import read_foreign
from vitkit.weights.metadata import LoadReport
from vitkit.weights.model_dir import read_model, save_model
from vitkit.weights.reference_models import NotLive, run_live
from vitkit.weights.tensor_files import find_weights, read_tensors
from vitkit.weights.write import write_model


@dataclass(frozen=True)
class Difference:
    """The largest difference of two models' outputs on random images, beside the largest output."""

    what: str
    difference: float | None
    scale: float
    note: str = ""


@dataclass(frozen=True)
class ConvertReport:
    read: LoadReport
    to: str
    layout: str
    written: str
    tensors: int
    notes: tuple[str, ...]
    differences: tuple[Difference, ...]


def convert(source: str | Path, out: str | Path, to: str, **options: Any) -> ConvertReport:
    """`options` are those of `load_model`: class names, preprocessing, other sizes."""
    model, report = read_model(source, **options)
    images, found = _images(model), []
    if not report.adapted and report.layout != "vitkit":
        place = hub.fetch(str(source)) if hub.is_name(source) else Path(source)
        found.append(_live("source", report.layout, place, model, images))
    notes: tuple[str, ...] = ()
    if to == "vitkit":
        path = save_model(model, out)
        back, _ = read_model(path)
        layout, tensors = "vitkit", len(model.state_dict())
    else:
        written = write_model(model, out, to)
        layout, tensors, notes, path = written.layout.name, len(written.tensors), written.notes, written.path
        told = {"heads": model.config.heads, "mlp": model.config.mlp, "image_size": model.config.image_size}
        back, _ = read_foreign(path if (path / "config.json").exists() else _only_file(path), told)
        found.append(_live("result", layout, path, model, images, written.tensors, written.config))
    found.append(_difference("round trip", model, back, images))
    return ConvertReport(report, to, layout, str(path), tensors, notes, tuple(found))


def _only_file(path: Path) -> Path:
    return path if path.is_file() else next(p for p in path.iterdir() if p.stem == "model")


def _images(model: ViT) -> Tensor:
    shape = (2, model.config.in_channels, *model.config.image_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def _difference(what: str, ours: ViT, theirs: ViT | Tensor, images: Tensor) -> Difference:
    expected = ours(images)
    other = theirs if isinstance(theirs, Tensor) else theirs(images)
    if other.shape != expected.shape:
        return Difference(what, None, 0.0, f"outputs are {tuple(other.shape)}, not {tuple(expected.shape)}")
    return Difference(what, (expected - other).abs().max().item(), expected.abs().max().item())


def _live(
    which: str, layout: str, path: Path, model: ViT, images: Tensor,
    tensors: Mapping[str, Tensor] | None = None, config: Any = None,
) -> Difference:  # fmt: skip
    what = f"{which}, run by the library of {layout}"
    try:
        tensors = tensors if tensors is not None else read_tensors(find_weights(path))[0]
        return _difference(what, model, run_live(layout, path, tensors, config or model.config, images), images)
    except NotLive as reason:
        return Difference(what, None, 0.0, str(reason))
    except WeightsError:
        raise
    except Exception as error:  # the library's own, whatever it may be: a comparison that fails is reported as that
        return Difference(
            what, None, 0.0, f"it failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
        )
