"""Load a model from a model folder, a run folder, a checkpoint of another library, or the Hugging Face hub."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ModelInfo, ViT, ViTConfig
from vitkit.weights import architectures, hub
from vitkit.weights.infer_config import check_complete, infer_config
from vitkit.weights.layouts import TIMM
from vitkit.weights.metadata import LoadReport
from vitkit.weights.model_dir import find_model_dir, load_model_dir
from vitkit.weights.resize import Side, adapt_model
from vitkit.weights.sidecar_config import read_class_names, read_preprocess, read_sidecar
from vitkit.weights.state_dict import (
    build_model,
    detect_layout,
    fold_register_positions,
    import_state_dict,
    pair_rotary_channels,
    without_wrappers,
)
from vitkit.weights.tensor_files import find_weights, read_tensors

ClassNames = Sequence[str] | str | Path  # names, or a file of them
PreprocessSource = Preprocess | Mapping[str, Any] | str | Path


def load_model(
    source: str | Path,
    device: str | torch.device = "cpu",
    *,
    class_names: ClassNames | None = None,
    preprocess: PreprocessSource | None = None,
    config: Mapping[str, Any] | None = None,
    architecture: str | None = None,
    image_size: Side | None = None,
    patch_size: Side | None = None,
    in_channels: int | None = None,
    num_classes: int | None = None,
) -> ViT:
    """Load a model folder, a run folder, a checkpoint of another library or hf-hub:owner/name, in eval mode.

    Anything that does not fit raises WeightsError. `model.info` contains the metadata; for other libraries' weights,
    `model.info.origin` lists what had to be assumed. `class_names` and `preprocess` (or files of them) are for weights
    that have none. `config` gives values that the tensors do not show, such as {"heads": 6}, and `architecture` names
    timm's architecture for a file without config. Another `image_size`, `patch_size`, `in_channels` or `num_classes`
    adapts the weights.
    """
    model, _ = load_with_report(
        source, class_names=class_names, preprocess=preprocess, config=config, architecture=architecture,
        image_size=image_size, patch_size=patch_size, in_channels=in_channels, num_classes=num_classes,
    )  # fmt: skip
    return model.to(device)


def load_with_report(
    source: str | Path,
    *,
    class_names: ClassNames | None = None,
    preprocess: PreprocessSource | None = None,
    config: Mapping[str, Any] | None = None,
    architecture: str | None = None,
    image_size: Side | None = None,
    patch_size: Side | None = None,
    in_channels: int | None = None,
    num_classes: int | None = None,
) -> tuple[ViT, LoadReport]:
    """Load a model as `load_model` does, and return it with a report.

    The report contains the source, its layout, the config, the number of tensors used, the tensors ignored or filled
    with zeros, the assumptions, and the adaptations.
    """
    path = hub.resolve(source)
    model_dir = find_model_dir(path)
    if model_dir and (config or architecture):
        overrides = ", ".join(f"`{name}`" for name in config or ("architecture",))
        raise WeightsError(f"{source} defines its own architecture; remove the {overrides} override")
    name = str(source) if hub.is_name(source) else path.name
    model, report = (
        load_model_dir(model_dir) if model_dir else load_foreign_checkpoint(path, config, name, architecture)
    )
    if preprocess is not None:
        model.info = model.info.replace(preprocess=read_preprocess(preprocess))
    model, changes = adapt_model(model, image_size, patch_size, in_channels, num_classes)
    if class_names is not None:
        names = read_class_names(class_names)
        if len(names) != model.config.num_classes:
            raise WeightsError(f"{len(names)} class names for a model of {model.config.num_classes} classes ({source})")
        model.info = model.info.replace(class_names=names)
    given = (("preprocessing: ", preprocess), ("no preprocessing: ", preprocess), ("no class names: ", class_names))
    replaced = tuple(prefix for prefix, value in given if value is not None)
    if changes or replaced:
        assumed = [line for line in report.assumed if not line.startswith(replaced)]
        report = dataclasses.replace(report, config=model.config, assumed=assumed, adapted=changes)
        if not model_dir:
            model.info = model.info.replace(origin=report.origin())
    return model, report


def read_config(source: str | Path) -> ViTConfig:
    """Return the config of anything that `load_model` can load."""
    path = hub.resolve(source)
    model_dir = find_model_dir(path)
    return model_dir.config if model_dir else load_foreign_checkpoint(path)[1].config


def load_foreign_checkpoint(
    source: Path, overrides: Mapping[str, Any] | None = None, name: str = "", architecture: str | None = None
) -> tuple[ViT, LoadReport]:
    """Load a checkpoint of another library as float32, and report how it was converted.

    `overrides` are config values that the tensor shapes do not determine; they take precedence over config files next
    to the weights. `name` is the source to report, by default the file name. `architecture` is timm's name of the
    model, by default the one in its config.json or at the start of the file name.
    """
    path = find_weights(source)
    raw, note = read_tensors(path)
    sidecar = read_sidecar(path)
    named = architectures.plain_name(architecture or "") or sidecar.architecture
    if named:
        architectures.by_name(named, path)
    layout = detect_layout(raw, path)
    if architecture and layout is not TIMM:
        raise WeightsError(f"{path} has the layout {layout.name}: an architecture can be named for timm's layout only")
    state = import_state_dict(layout, raw, path)
    tensors = _as_float32(state.tensors, path)
    check_complete(tensors, path)
    known = {**sidecar.config, **({"heads": state.heads} if state.heads else {}), **(overrides or {})}
    defaults, heads, rotary_order, by_name = dict(layout.config), layout.heads, "", []
    width = tensors["patch_embed.proj.weight"].shape[0]
    if layout is TIMM:
        traits = architectures.find_traits(without_wrappers(raw), tensors)
        if architecture:
            architectures.check_name(named, traits, path)
        if not named and (named := architectures.name_of_file(path.stem, traits) or ""):
            by_name = [f"architecture={named} (from the file name; no config.json next to the weights names it)"]
        unnamed = None if named else architectures.by_tensors(traits, width, known, path)
        family = unnamed or architectures.by_name(named, path)
        defaults, heads, rotary_order = family.values, family.heads, family.rotary_order
    if named or sidecar.config:  # the library's code, not an assumption
        known = {**defaults, **({"heads": heads[width]} if named and width in heads else {}), **known}
    config, assumed = infer_config(tensors, known, defaults, path, heads, layout.required)
    tensors = fold_register_positions(tensors, config)
    if rotary_order:
        tensors = pair_rotary_channels(tensors, config, rotary_order)
    zero_keys = layout.zero_keys if config.pre_norm or config.norm == "rms" else ()
    model, filled = build_model(config, tensors, path, zero_keys)
    names = _class_names(sidecar.class_names, config, assumed)
    preprocess = sidecar.preprocess or _usual_preprocess(layout.preprocess, named, config, assumed)
    others = sorted({str(t.dtype).removeprefix("torch.") for t in state.tensors.values()} - {"float32"})
    notes = [
        *by_name,
        *sidecar.notes,
        *([note] if note else []),
        *(f"{dtype} weights were converted to float32" for dtype in others),
    ]
    report = LoadReport(
        name or source.name, layout.name, config, state.used, state.ignored, filled, tuple(assumed + notes),
        architecture=named,
    )  # fmt: skip
    model.info = ModelInfo(class_names=names, preprocess=preprocess, license=sidecar.license, origin=report.origin())
    return model, report


def _as_float32(tensors: Mapping[str, Tensor], where: object) -> dict[str, Tensor]:
    for key, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise WeightsError(f"{where}: {key} is {tensor.dtype}: quantised weights are not supported")
    return {key: tensor.to(torch.float32).contiguous() for key, tensor in tensors.items()}


def _class_names(names: Sequence[str], config: ViTConfig, assumed: list[str]) -> tuple[str, ...]:
    if len(names) == config.num_classes:
        return tuple(names)
    if names and config.num_classes:
        assumed.append(f"no class names: the {len(names)} next to the weights do not fit {config.num_classes} classes")
    return ()


def _usual_preprocess(
    usual: Mapping[str, Any], architecture: str, config: ViTConfig, assumed: list[str]
) -> Preprocess | None:
    """Return the preprocessing of published models, noted in `assumed`.

    Return None for other than 3 channels, and if the published weights of the architecture differ in their mean.
    """
    if config.in_channels != 3:
        return None
    if architecture:
        normalisation = architectures.normalisation(architecture)
        if normalisation is None:
            assumed.append(f"no preprocessing: published weights of {architecture} differ in mean and deviation")
            return None
        usual = {**usual, **normalisation}
    p = Preprocess.from_dict({"size": config.image_size, **usual})
    assumed.append(
        f"preprocessing: resize to {min(p.resized_size(p.size))} ({p.interpolation}), "
        f"{p.fit} to {p.size[0]}×{p.size[1]}, mean {' '.join(f'{v:.3f}' for v in p.mean)}, "
        f"std {' '.join(f'{v:.3f}' for v in p.std)} "
        "(usual for this layout; no file next to the weights defines it)"
    )
    return p
