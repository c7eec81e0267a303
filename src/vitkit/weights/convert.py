"""Convert weights between layouts, write them for other libraries, and measure how much the logits change."""

import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from vitkit.atomic import write_atomic, write_json
from vitkit.errors import UnknownNameError, WeightsError, first_line
from vitkit.model import ModelInfo, ViT, ViTConfig
from vitkit.weights import hf_config, hub, timm_config
from vitkit.weights.layouts import TARGETS, Layout
from vitkit.weights.load import load_foreign_checkpoint, load_with_report
from vitkit.weights.metadata import LoadReport
from vitkit.weights.model_dir import save_model
from vitkit.weights.reference_models import Checkpoint, ReferenceUnavailable, run_reference
from vitkit.weights.state_dict import State, export_state_dict, rewrite, unsupported_feature
from vitkit.weights.tensor_files import find_weights, read_tensors

TOLERANCE = 1e-4  # of the largest logit; differences of rounding are about 1e-6


@dataclass(frozen=True)
class Difference:
    """The largest difference between the logits of two models on random images, and the largest logit as its scale."""

    what: str
    difference: float | None
    scale: float
    note: str = ""

    @property
    def failed(self) -> bool:
        return self.difference is not None and not self.difference <= TOLERANCE * max(self.scale, 1e-12)


@dataclass(frozen=True)
class ConvertReport:
    """The source and the result of `convert`, and the measured differences between their logits."""

    read: LoadReport
    to: str
    layout: str
    written: str
    tensors: int
    notes: tuple[str, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class WrittenModel:
    layout: Layout
    config: ViTConfig  # of the rewritten model that was stored
    tensors: State
    path: Path  # the file or folder
    notes: tuple[str, ...]


def convert(source: str | Path, out: str | Path, to: str, **options: Any) -> ConvertReport:
    """Load `source` with `options` of `load_model`, and write it to `out` as "vitkit" or another target of TARGETS.

    Return a report that compares its logits with those of the written model and, if installed, of the other libraries.
    Raise WeightsError and write nothing if logits differ by more than TOLERANCE of the largest one.
    """
    model, report = load_with_report(source, **options)
    shape = (2, model.config.in_channels, *model.config.image_size)
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    differences = []
    if not report.adapted and report.layout != "vitkit":
        path = hub.resolve(source)
        checkpoint = Checkpoint(path, read_tensors(find_weights(path))[0], model.config, report.architecture)
        differences.append(_compare_with_library("source", report.layout, checkpoint, model, images))
        _check(differences)
    notes: tuple[str, ...] = ()
    out = Path(out)
    with tempfile.TemporaryDirectory(prefix=".vitkit-", dir=_existing_parent(out)) as staging:
        new = Path(staging) / out.absolute().parent.name / out.name  # the model card takes its title from these names
        if to == "vitkit":
            written_path = save_model(model, new)
            back, _ = load_with_report(written_path)
            layout, tensors = "vitkit", len(model.state_dict())
        else:
            written = write_model(model, new, to)
            layout, tensors, notes = written.layout.name, len(written.tensors), written.notes
            written_path, c = written.path, written.config
            alone = written_path.is_dir() and not (written_path / "config.json").exists()
            weights = next(p for p in written_path.iterdir() if p.stem == "model") if alone else written_path
            config = {name: getattr(c, name) for name in ("heads", "mlp", "norm_eps", "image_size", "position")}
            described = written_path.is_dir() and not alone
            back, _ = load_foreign_checkpoint(weights, {} if described else {**config, "pooling": c.pooling})
            checkpoint = Checkpoint(written_path, written.tensors, c, written=True)
            differences.append(_compare_with_library("result", layout, checkpoint, model, images))
        differences.append(_compare("round trip", model, back, images))
        _check(differences)
        _publish(written_path, out)
    return ConvertReport(report, to, layout, str(out), tensors, notes, tuple(differences))


def _check(differences: Sequence[Difference]) -> None:
    for d in differences:
        if d.failed:
            raise WeightsError(
                f"{d.what}: logits differ by {d.difference:.2g} (largest logit {d.scale:.2g}, tolerance {TOLERANCE:g} "
                "of it): nothing was written"
            )


def _existing_parent(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if parent.is_dir())


def _publish(written: Path, out: Path) -> None:
    """Move a verified file, or the files of a verified folder and last its config, to the place that was asked for."""
    if written.is_file():
        out.parent.mkdir(parents=True, exist_ok=True)
        written.replace(out)
        return
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(written.iterdir(), key=lambda file: file.name == "config.json"):
        file.replace(out / file.name)


def write_model(model: ViT, out: str | Path, to: str) -> WrittenModel:
    """Write a folder of weights and config for the library `to`; one file if `out` ends in .safetensors or .npz."""
    if to not in TARGETS:
        raise UnknownNameError("layout to write", to, TARGETS)
    if type(model) is not ViT:
        raise WeightsError(f"{to} cannot store a {type(model).__name__}: other libraries have no such model")
    state = {key: tensor.detach().cpu().float() for key, tensor in model.state_dict().items()}
    layout, tensors, config = _export(state, model.config, to)
    notes = []
    eps = (layout.supports or {}).get("norm_eps")
    if eps and config.norm_eps not in eps:
        notes.append(f"{layout.name} uses norm_eps={eps[0]:g} instead of {config.norm_eps:g}; see the difference below")
    if model.info.preprocess is not None and model.info.preprocess.range is not None:
        low, high = model.info.preprocess.range
        notes.append(f"{to} has no setting for preprocess.range: scale images so that {low:g} is black, {high:g} white")
    out = Path(out)
    suffix = ".npz" if to == "npz" else ".safetensors"
    if out.suffix in (".npz", ".safetensors", ".pth", ".bin"):
        if out.suffix != suffix:
            raise WeightsError(f"{out}: {to} is written as {suffix}: use that suffix, or name a folder")
        out.parent.mkdir(parents=True, exist_ok=True)
        _write_tensors(out, tensors)
        return WrittenModel(layout, config, tensors, out, tuple(notes))
    out.mkdir(parents=True, exist_ok=True)
    _write_tensors(out / f"model{suffix}", tensors)
    for name, content in _sidecar_files(to, layout.name, config, model.info).items():
        if content is None:
            notes.append(f"{name} was not written: {to} has no equivalent of the model's preprocessing")
        else:
            write_json(out / name, content)
    return WrittenModel(layout, config, tensors, out, tuple(notes))


def _export(state: State, config: ViTConfig, to: str) -> tuple[Layout, State, ViTConfig]:
    """Return the library's first layout that supports the model, with its tensors and config; raise if none does."""
    reasons = []
    for layout in TARGETS[to]:
        rewritten, new_config = rewrite(state, config, layout.rewrites)
        reason = unsupported_feature(layout, new_config)
        if reason is None:
            return layout, export_state_dict(layout, rewritten, new_config), new_config
        reasons.append(reason)
    raise WeightsError("; ".join(reasons))


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, **{key: tensor.numpy() for key, tensor in tensors.items()})  # type: ignore[arg-type]  # any name is allowed
        write_atomic(path, buffer.getvalue())
    else:
        contiguous = {key: tensor.clone(memory_format=torch.contiguous_format) for key, tensor in tensors.items()}
        write_atomic(path, save(contiguous, metadata={"format": "pt"}))


def _sidecar_files(to: str, layout: str, config: ViTConfig, info: ModelInfo) -> dict[str, dict[str, Any] | None]:
    """Return the library's config files by name. A content is None if the library cannot express it."""
    if to == "timm":
        return {"config.json": timm_config.write_config(config, info)}
    if to != "hf":
        return {}
    files: dict[str, dict[str, Any] | None] = {"config.json": hf_config.write_config(layout, config, info)}
    if info.preprocess is not None:
        files["preprocessor_config.json"] = hf_config.write_preprocessor(info.preprocess)
    return files


@torch.no_grad()
def _compare(what: str, ours: ViT, theirs: ViT | Tensor, images: Tensor) -> Difference:
    expected = ours(images)
    other = theirs if isinstance(theirs, Tensor) else theirs(images)
    if other.shape != expected.shape:
        return Difference(what, None, 0.0, f"outputs are {tuple(other.shape)}, not {tuple(expected.shape)}")
    return Difference(what, (expected - other).abs().max().item(), expected.abs().max().item())


def _compare_with_library(which: str, layout: str, checkpoint: Checkpoint, model: ViT, images: Tensor) -> Difference:
    what = f"{which}, run by the library of {layout}"
    try:
        return _compare(what, model, run_reference(layout, checkpoint, images), images)
    except ReferenceUnavailable as reason:
        return Difference(what, None, 0.0, str(reason))
    except WeightsError:
        raise
    except Exception as error:  # the library may raise anything
        failure = f"it failed: {type(error).__name__}: {first_line(error)[:160]}"
        if checkpoint.written:
            raise WeightsError(f"{what}: {failure}: nothing was written") from error
        return Difference(what, None, 0.0, failure)
