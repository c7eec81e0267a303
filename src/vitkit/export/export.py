"""`export(model, out, to="onnx")`: a folder that answers by itself in another runtime, checked there before it exists.

model.onnx, or model.xml and model.bin    the graph, the weights, class names and preprocessing
model_224x224.onnx …                      instead, where several sizes are baked in: one file each
export.json                               what was measured
README.md                                 the same for people
"""

import copy
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vitkit.atomic import write_atomic, write_json
from vitkit.errors import ConfigError, DataError, UnknownNameError
from vitkit.export.calibration import CheckSet, from_data, from_samples, own_data
from vitkit.export.card import card
from vitkit.export.graph import WRITERS
from vitkit.export.metadata import ExportInfo, file_stem
from vitkit.export.packages import need
from vitkit.export.parity import FP32, INT8, Parity, Tolerance, folder_size, measure
from vitkit.export.quantize import quantize_onnx, quantize_openvino
from vitkit.inference.engines import Eager, Exported, export_info
from vitkit.model import ViT
from vitkit.model.validation import check_images
from vitkit.weights.load import load_model
from vitkit.weights.metadata import require_metadata

QUANTIZERS = {"onnx": quantize_onnx, "openvino": quantize_openvino}
NEEDS = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("onnx", "onnxscript", "openvino")}
SUFFIX = {"onnx": ".onnx", "openvino": ".xml"}

Size = int | tuple[int, int]


@dataclass(frozen=True)
class Export:
    folder: Path
    to: str
    files: dict[str, Parity]  # by name: what each file was measured to be
    tolerance: Tolerance

    def to_dict(self) -> dict[str, Any]:
        return {
            "to": self.to,
            "folder": str(self.folder),
            "tolerance": vars(self.tolerance),
            "files": {name: parity.to_dict() for name, parity in self.files.items()},
        }


def export(
    model: ViT | str | Path,
    out: str | Path,
    to: str = "onnx",
    *,
    int8: bool = False,
    calibrate: str | Path | None = None,
    sizes: Sequence[Size] = (),
    dynamic_size: bool = False,
    with_preprocessing: bool = False,
    tolerance: Tolerance | None = None,
    **opening: Any,
) -> Export:
    """Write, run, compare; over the tolerance it is a `WorkError` and nothing is left behind.

    `calibrate`: a data set as `open_data` takes it (`opening` goes there): int8 ranges come from its training images,
    the comparison from the others. By default it is the model's own, where it is at hand; else sample photographs,
    which do for a comparison, not for int8.
    """
    out = Path(out)
    _check(out, to, int8, sizes, dynamic_size)
    vit = (copy.deepcopy(model) if isinstance(model, ViT) else load_model(model)).cpu().float().eval()
    names, preprocess = require_metadata(vit, "the model" if isinstance(model, ViT) else model)
    takes = "pixels" if with_preprocessing else "images"
    tolerance = tolerance or (INT8 if int8 else FP32)
    stems = {file_stem(_pair(size)): preprocess.replace(size=size) for size in sizes} or {"model": preprocess}
    if len(stems) == 1:
        stems = {"model": next(iter(stems.values()))}
    for at_size in stems.values():
        check_images(torch.zeros(1, at_size.channels, *at_size.size), vit.config, torch.float32)
    building = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    building.mkdir(parents=True)
    try:
        parities: dict[str, Parity] = {}
        infos: dict[str, ExportInfo] = {}
        for stem, at_size in stems.items():
            check = _check_set(vit, at_size, names, calibrate, int8, opening)
            info = export_info(vit, at_size, takes, dynamic_size)
            path = building / f"{stem}{SUFFIX[to]}"
            infos[path.name], parities[path.name] = _one(vit, info, path, to, check, int8, tolerance)
        result = Export(out, to, parities, tolerance)
        write_json(building / "export.json", result.to_dict())
        write_atomic(building / "README.md", card(out.name, vit, to, infos, parities, tolerance).encode())
        if out.exists():
            out.rmdir()  # empty, as _check has seen
        os.replace(building, out)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return result


def _one(
    vit: ViT, info: ExportInfo, path: Path, to: str, check: CheckSet, int8: bool, tolerance: Tolerance
) -> tuple[ExportInfo, Parity]:
    WRITERS[to](vit, info, path)
    if int8:
        info = replace(info, precision="int8")
        assert check.calibration is not None
        QUANTIZERS[to](path, info, check.calibration)
    size = folder_size([p for p in path.parent.iterdir() if p.name.startswith(f"{path.stem}.")])
    parity = measure(Eager(vit, info.preprocess), Exported(path), check, size)
    parity.judge(tolerance, f"the {info.precision} export for {to}")
    return info, parity


def _check(out: Path, to: str, int8: bool, sizes: Sequence[Size], dynamic_size: bool) -> None:
    if to not in NEEDS:
        raise UnknownNameError("runtime", to, NEEDS)
    for package in (*NEEDS[to], *(("nncf",) if int8 and to == "openvino" else ())):
        need(package, f"export for {to}")
    if sizes and dynamic_size:
        raise ConfigError("several sizes and a dynamic size: choose one")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder: remove it or choose another")


def _check_set(
    vit: ViT, preprocess: Any, names: Sequence[str], calibrate: str | Path | None, int8: bool, opening: dict[str, Any]
) -> CheckSet:
    if calibrate is not None:
        return from_data(calibrate, preprocess, names, **{**vit.info.split_settings, **opening})
    if own := own_data(vit.info.recipe):
        return from_data(own.pop("data"), preprocess, names, **{**own, **opening})
    if int8:
        raise DataError("int8 needs real images of the kind the model will see: give them with --calibrate DATA")
    return from_samples(preprocess)


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size
