"""From any layout to any other, with the difference in logits that it makes."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from vitkit.atomic import write_atomic, write_json
from vitkit.errors import UnknownNameError, WeightsError
from vitkit.model import ModelInfo, ViT, ViTConfig
from vitkit.weights import hf_config, hub, timm_config
from vitkit.weights.layouts import TARGETS, Layout
from vitkit.weights.load import load_foreign, load_with_report
from vitkit.weights.metadata import LoadReport
from vitkit.weights.model_dir import save_model
from vitkit.weights.reference_models import ReferenceUnavailable, run_reference
from vitkit.weights.state_dict import export_state_dict, rewrite, unsupported_feature
from vitkit.weights.tensor_files import find_weights, read_tensors


@dataclass(frozen=True)
class Written:
    layout: Layout
    config: ViTConfig  # of the form in which the layout holds the model
    tensors: dict[str, Tensor]
    path: Path  # the file or folder
    notes: tuple[str, ...]


def write_model(model: ViT, out: str | Path, to: str) -> Written:
    """Into a folder with the library's config, or a single file where `out` ends in .safetensors or .npz."""
    if to not in TARGETS:
        raise UnknownNameError("layout to write", to, TARGETS)
    state = {key: tensor.detach().cpu().float() for key, tensor in model.state_dict().items()}
    layout, tensors, config = _fit(state, model.config, to)
    notes = []
    eps = (layout.holds or {}).get("norm_eps")
    if eps and config.norm_eps not in eps:
        notes.append(f"norm_eps={config.norm_eps:g} becomes {eps[0]:g} in {layout.name}: the difference below shows it")
    out, info = Path(out), model.info
    wanted = ".npz" if to == "npz" else ".safetensors"
    if out.suffix in (".npz", ".safetensors", ".pth", ".bin"):
        if out.suffix != wanted:
            raise WeightsError(f"{out}: {to} is written as {wanted}, or into a folder")
        out.parent.mkdir(parents=True, exist_ok=True)
        _write_tensors(out, tensors)
        return Written(layout, config, tensors, out, tuple(notes))
    out.mkdir(parents=True, exist_ok=True)
    _write_tensors(out / f"model{wanted}", tensors)
    for name, content in _CONFIGS[to](layout.name, config, info).items():
        if content is None:
            notes.append(f"{name} is not written: {to} has no such preprocessing as the model's")
        else:
            write_json(out / name, content)
    return Written(layout, config, tensors, out, tuple(notes))


def _fit(state: dict[str, Tensor], config: ViTConfig, to: str) -> tuple[Layout, dict[str, Tensor], ViTConfig]:
    """The first layout of a library that can hold the model; the refusal names what the nearest one lacks."""
    refusals = []
    for layout in TARGETS[to]:
        rewritten, form = rewrite(state, config, layout.rewrites)
        refusal = unsupported_feature(layout, form)
        if refusal is None:
            return layout, export_state_dict(layout, rewritten, form), form
        refusals.append(refusal)
    raise WeightsError("; ".join(refusals))


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **{key: tensor.numpy() for key, tensor in tensors.items()})  # type: ignore[arg-type]  # names may be any
        write_atomic(path, buffer.getvalue())
    else:
        contiguous = {key: tensor.clone(memory_format=torch.contiguous_format) for key, tensor in tensors.items()}
        write_atomic(path, save(contiguous, metadata={"format": "pt"}))


def _hf(layout: str, config: ViTConfig, info: ModelInfo) -> dict[str, Any]:
    files: dict[str, Any] = {"config.json": hf_config.write_config(layout, config, info)}
    if info.preprocess is not None:
        files["preprocessor_config.json"] = hf_config.write_preprocessor(info.preprocess)
    return files


def _timm(layout: str, config: ViTConfig, info: ModelInfo) -> dict[str, Any]:
    return {"config.json": timm_config.write_config(config, info)}


def _none(layout: str, config: ViTConfig, info: ModelInfo) -> dict[str, Any]:
    return {}


_CONFIGS: dict[str, Callable[[str, ViTConfig, ModelInfo], dict[str, Any]]] = {
    "hf": _hf,
    "timm": _timm,
    "dinov2": _none,
    "torchvision": _none,
    "npz": _none,
}


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
    model, report = load_with_report(source, **options)
    images, found = _images(model), []
    if not report.adapted and report.layout != "vitkit":
        place = hub.fetch(str(source)) if hub.is_name(source) else Path(source)
        found.append(_live("source", report.layout, place, model, images))
    notes: tuple[str, ...] = ()
    if to == "vitkit":
        path = save_model(model, out)
        back, _ = load_with_report(path)
        layout, tensors = "vitkit", len(model.state_dict())
    else:
        written = write_model(model, out, to)
        layout, tensors, notes, path = written.layout.name, len(written.tensors), written.notes, written.path
        told = {"heads": model.config.heads, "mlp": model.config.mlp, "image_size": model.config.image_size}
        back, _ = load_foreign(path if (path / "config.json").exists() else _only_file(path), told)
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
        return _difference(what, model, run_reference(layout, path, tensors, config or model.config, images), images)
    except ReferenceUnavailable as reason:
        return Difference(what, None, 0.0, str(reason))
    except WeightsError:
        raise
    except Exception as error:  # the library's own, whatever it may be: a comparison that fails is reported as that
        return Difference(
            what, None, 0.0, f"it failed: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
        )
