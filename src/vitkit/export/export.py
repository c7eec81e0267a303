"""Exports a model to another runtime, as a folder of its own that is verified before it is written.

model.onnx, or model.xml and model.bin    the graph with weights, class names and preprocessing
model_224x224.onnx …                      one file per image size, if several sizes are requested
export.json                               the measured differences from the torch model
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
from vitkit.data.preprocess import Preprocess
from vitkit.errors import ConfigError, DataError, UnknownNameError
from vitkit.export.calibration import (
    ParityImages,
    parity_images_from_data,
    parity_images_from_samples,
    training_data_options,
)
from vitkit.export.export_card import render_export_card
from vitkit.export.graph import WRITERS
from vitkit.export.metadata import SUFFIXES, ExportMetadata, file_stem
from vitkit.export.parity import FP32, INT8, Parity, Tolerance, measure_parity
from vitkit.export.quantize import quantize_onnx, quantize_openvino
from vitkit.export.runtimes import ExportedModel, TorchModel
from vitkit.model import ViT
from vitkit.model.validation import check_images
from vitkit.runtime.packages import require_package
from vitkit.weights.load import load_model
from vitkit.weights.metadata import require_metadata

QUANTIZERS = {"onnx": quantize_onnx, "openvino": quantize_openvino}
PACKAGES = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("onnx", "onnxscript", "openvino")}
_SUFFIX_OF = {runtime: suffix for suffix, runtime in SUFFIXES.items()}

ImageSize = int | tuple[int, int]


@dataclass(frozen=True)
class ExportResult:
    """The written folder, and the measured differences of each file in it."""

    folder: Path
    to: str
    files: dict[str, Parity]  # by file name
    tolerance: Tolerance

    def to_dict(self) -> dict[str, Any]:
        return {
            "to": self.to,
            "folder": str(self.folder),
            "tolerance": vars(self.tolerance),
            "files": {name: parity.to_dict() for name, parity in self.files.items()},
        }


def export_model(
    model: ViT | str | Path,
    out: str | Path,
    to: str = "onnx",
    *,
    int8: bool = False,
    calibrate: str | Path | None = None,
    image_sizes: Sequence[ImageSize] = (),
    dynamic_size: bool = False,
    with_preprocessing: bool = False,
    tolerance: Tolerance | None = None,
    **open_options: Any,
) -> ExportResult:
    """Write the model for the runtime `to`, run it there and compare it with the torch model.

    If a difference exceeds the tolerance, a `WorkError` is raised and nothing is written.

    `calibrate` is a data set as `open_data` takes it, and `open_options` are further arguments of `open_data`. Its
    training images calibrate int8, and its other images are compared. The default is the model's training data if
    they are on this machine, else sample photographs. These do not suffice for int8.
    """
    out = Path(out)
    _check_arguments(out, to, int8, image_sizes, dynamic_size)
    vit = (copy.deepcopy(model) if isinstance(model, ViT) else load_model(model)).cpu().float().eval()
    class_names, preprocess = require_metadata(vit, "the model" if isinstance(model, ViT) else model)
    input_kind = "pixels" if with_preprocessing else "images"
    tolerance = tolerance or (INT8 if int8 else FP32)
    variants = {file_stem(size): preprocess.replace(size=size) for size in image_sizes} or {"model": preprocess}
    if len(variants) == 1:
        variants = {"model": next(iter(variants.values()))}
    for at_size in variants.values():
        check_images(torch.zeros(1, at_size.channels, *at_size.size), vit.config, torch.float32)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        parities: dict[str, Parity] = {}
        metadata: dict[str, ExportMetadata] = {}
        for stem, at_size in variants.items():
            images = _parity_images(vit, at_size, class_names, calibrate, int8, open_options)
            fp32 = ExportMetadata.from_model(vit, at_size, input_kind, dynamic_size)
            path = temporary / f"{stem}{_SUFFIX_OF[to]}"
            metadata[path.name], parities[path.name] = _export_file(vit, fp32, path, to, images, int8, tolerance)
        result = ExportResult(out, to, parities, tolerance)
        write_json(temporary / "export.json", result.to_dict())
        card = render_export_card(out.name, vit, to, metadata, parities, tolerance)
        write_atomic(temporary / "README.md", card)
        if out.exists():
            out.rmdir()  # _check_arguments has verified that it is empty
        os.replace(temporary, out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return result


def _export_file(
    vit: ViT, metadata: ExportMetadata, path: Path, to: str, images: ParityImages, int8: bool, tolerance: Tolerance
) -> tuple[ExportMetadata, Parity]:
    """Write one graph, quantize it if requested, and check it. Return its final metadata and its differences."""
    WRITERS[to](vit, metadata, path)
    if int8:
        metadata = replace(metadata, precision="int8")
        assert images.calibration is not None
        QUANTIZERS[to](path, metadata, images.calibration)
    size = sum(p.stat().st_size for p in path.parent.iterdir() if p.name.startswith(f"{path.stem}."))
    parity = measure_parity(TorchModel(vit, metadata.preprocess), ExportedModel(path), images, size)
    parity.check(tolerance, f"the {metadata.precision} export for {to}")
    return metadata, parity


def _check_arguments(out: Path, to: str, int8: bool, image_sizes: Sequence[ImageSize], dynamic_size: bool) -> None:
    if to not in PACKAGES:
        raise UnknownNameError("runtime", to, PACKAGES)
    for package in (*PACKAGES[to], *(("nncf",) if int8 and to == "openvino" else ())):
        require_package(package, f"export for {to}")
    if image_sizes and dynamic_size:
        raise ConfigError("fixed image sizes and a dynamic size exclude each other: choose one")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not an empty folder: remove it or choose another")


def _parity_images(
    vit: ViT,
    preprocess: Preprocess,
    class_names: Sequence[str],
    calibrate: str | Path | None,
    int8: bool,
    open_options: dict[str, Any],
) -> ParityImages:
    if calibrate is not None:
        return parity_images_from_data(
            calibrate, preprocess, class_names, **{**vit.info.split_settings, **open_options}
        )
    if options := training_data_options(vit.info.recipe):
        return parity_images_from_data(options.pop("data"), preprocess, class_names, **{**options, **open_options})
    if int8:
        raise DataError("int8 needs images like those the model will see: pass them with --calibrate DATA")
    return parity_images_from_samples(preprocess)
