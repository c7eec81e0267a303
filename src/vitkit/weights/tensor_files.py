"""Tensors out of files that nobody vouches for: no code of theirs runs, and no size they declare is believed.

safetensors   one file, or shards with an index.json beside them
.npz          numpy arrays, never pickled ones
.pth .pt .bin pickles, read with weights_only=True and in no other way
"""

import json
import math
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vitkit.errors import WeightsError, first_line

Tensors = dict[str, Tensor]

INDEX = ".index.json"
PICKLES = (".pth", ".pt", ".bin")
# What a folder calls its weights, in the order in which they are preferred
STANDARD = (
    "model.safetensors", "model.safetensors.index.json", "open_clip_model.safetensors", "pytorch_model.bin",
    "pytorch_model.bin.index.json", "open_clip_pytorch_model.bin",
)  # fmt: skip
_SUFFIXES = (".safetensors", ".npz", *PICKLES)
_MOST_SHRUNK = 50  # trained numbers hardly compress; a file that grows more than this when unpacked is a trap
_SLACK = 1 << 20  # … unless it is small
# Inside a pickle of a whole training state: where the weights are, the average of them before the raw ones
_INSIDE = ("model_ema", "state_dict_ema", "teacher", "model", "state_dict", "module", "net", "student")


def find_weights(source: Path) -> Path:
    """The weights file that a path means: itself, or the one of a folder."""
    if source.is_file():
        return source
    if not source.is_dir():
        raise WeightsError(
            f"no model at {source}: give a model folder, a run folder, a checkpoint or hf-hub:owner/name"
        )
    if (source / "recipe.json").is_file():
        raise WeightsError(
            f"{source} is a run that has not ended: `vitkit train DATA --out {source} --resume` goes on with it, "
            f"`vitkit convert {source} MODEL --to vitkit` takes its best weights so far"
        )
    if not any(source.glob("*config.json")):
        raise WeightsError(
            f"{source} is not a model folder: it holds no config.json; name a weights file to read it alone"
        )
    for name in STANDARD:
        if (source / name).is_file():
            return source / name
    raise WeightsError(
        f"{source} holds no weights under a name that is known ({', '.join(STANDARD[:2])} …): name the file"
    )


def read_tensors(path: Path) -> tuple[Tensors, str]:
    """All tensors of a file by name, and what had to be done to reach them, if anything."""
    if path.name.endswith(INDEX):
        return _read_shards(path), ""
    if path.suffix == ".safetensors":
        return _read_safetensors(path), ""
    if path.suffix == ".npz":
        return _read_npz(path), ""
    if path.suffix in PICKLES:
        return _read_pickle(path)
    raise WeightsError(f"{path} is no weights file: known are {', '.join((*_SUFFIXES, INDEX))}")


def read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not readable as JSON: {first_line(error)}") from error
    if not isinstance(values, dict):
        raise WeightsError(f"{path} is not a JSON object but {type(values).__name__}")
    return values


def _read_safetensors(path: Path) -> Tensors:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(f"{path} is not a readable safetensors file: {first_line(error)}") from error


def _read_shards(index: Path) -> Tensors:
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not table or not all(isinstance(v, str) for v in table.values()):
        raise WeightsError(f"{index} has no weight_map of tensor names to files")
    names = list(dict.fromkeys(table.values()))
    for name in names:
        if Path(name).name != name or "\\" in name or Path(name).suffix not in (".safetensors", *PICKLES):
            raise WeightsError(f"{index} names {name!r}, which is not a weights file of its own folder: refused")
        if not (index.parent / name).is_file():
            raise WeightsError(
                f"{index.parent / name}, which {index.name} names, is missing: the folder is not complete"
            )
    tensors: Tensors = {}
    for name in names:
        wanted = {key for key, file in table.items() if file == name}
        found, _ = read_tensors(index.parent / name)
        if wanted != found.keys():
            odd = sorted(wanted ^ found.keys())[0]
            raise WeightsError(f"{index} and {name} disagree about {odd}: they do not belong together")
        tensors |= found
    return tensors


def _read_npz(path: Path) -> Tensors:
    try:
        with zipfile.ZipFile(path) as archive:
            _check_unpacked(archive, path)
            return {key: _read_npy(archive, member, path) for key, member in _npz_members(archive)}
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError, SyntaxError) as error:
        raise WeightsError(f"{path} is not a readable .npz file: {first_line(error)}") from error


def _npz_members(archive: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    for member in archive.infolist():
        yield member.filename.removesuffix(".npy"), member


def _read_npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> Tensor:
    """One array, once its header is seen to ask for no more than the archive holds: numpy would reserve it at once."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read_header[version](file) if version in read_header else ((), False, np.dtype(object))
    if dtype.kind not in "fiu":
        raise WeightsError(f"{path}: {member.filename} holds {dtype}, not numbers: refused")
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise WeightsError(f"{path}: {member.filename} declares {shape} of {dtype}, more than the file holds: damaged")
    with archive.open(member) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))


def _check_unpacked(archive: zipfile.ZipFile, path: Path) -> None:
    packed = path.stat().st_size
    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > _MOST_SHRUNK * packed + _SLACK:
        raise WeightsError(f"{path} would unpack from {packed:,} to {unpacked:,} bytes: no weights shrink so, refused")


def _read_pickle(path: Path) -> tuple[Tensors, str]:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _check_unpacked(archive, path)
        with warnings.catch_warnings(action="ignore"):  # of pickle protocols
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except WeightsError:
        raise
    except Exception as error:  # a hostile or damaged pickle fails in any way that its bytes can spell
        raise WeightsError(f"{path} is refused: {_why_unsafe(error)}") from error
    state, inside = _unwrap(loaded)
    if not isinstance(state, Mapping) or not all(isinstance(k, str) for k in state):
        raise WeightsError(f"{path} holds no table of named tensors but {type(state).__name__}")
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    if odd := next((key for key, value in state.items() if not isinstance(value, Tensor)), None):
        raise WeightsError(f"{path}: {odd} is not a tensor but {type(state[odd]).__name__}")
    for key, tensor in tensors.items():
        _check_honest(tensor, key, path)
    return tensors, f"the weights under {inside!r} were taken" if inside else ""


def _unwrap(loaded: Any, inside: str = "") -> tuple[Any, str]:
    """The table of tensors in a training state, and where in it that was."""
    if isinstance(loaded, Mapping) and not any(isinstance(v, Tensor) for v in loaded.values()):
        for name in _INSIDE:
            if isinstance(loaded.get(name), Mapping):
                return _unwrap(loaded[name], f"{inside}.{name}".lstrip("."))
    return loaded, inside


def _check_honest(tensor: Tensor, key: str, path: Path) -> None:
    """A few bytes can pose as a tensor of any size: one number with stride 0, or one that is not there at all."""
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not plain or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise WeightsError(f"{path}: {key} is {tuple(tensor.shape)} on less storage than that: not plain, refused")


def _why_unsafe(error: Exception) -> str:
    """In our words: torch's own advise to load it unsafely."""
    text = str(error)
    if named := re.search(r"GLOBAL ([\w.]+)", text):
        name = named[1].rstrip(".")
        return f"its pickle asks for {name}, and could run any code; get it as safetensors, or save its tensors alone"
    detail = re.search(r"WeightsUnpickler error:\s*(.+)", text)
    return f"it is no plain table of tensors ({detail[1] if detail else type(error).__name__})"
