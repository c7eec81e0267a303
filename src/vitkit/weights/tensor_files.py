"""Read tensors from untrusted files: no code in them is run, and no size that they declare is trusted.

safetensors   one file, or shards listed in an index.json
.npz          numpy arrays, never pickled ones
.pth .pt .bin pickles, always read with weights_only=True
"""

import json
import math
import re
import warnings
import zipfile
from collections.abc import Mapping
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
# File names of weights in a folder, in order of preference
STANDARD = (
    "model.safetensors", "model.safetensors.index.json", "open_clip_model.safetensors", "pytorch_model.bin",
    "pytorch_model.bin.index.json", "open_clip_pytorch_model.bin",
)  # fmt: skip
_SUFFIXES = (".safetensors", ".npz", *PICKLES)
_MAX_COMPRESSION = 50  # trained weights hardly compress: a higher ratio suggests a zip bomb
_SMALL = 1 << 20  # bytes that are always accepted
# Keys of the weights in a pickled training state; averaged weights come before raw ones
_WEIGHT_KEYS = ("model_ema", "state_dict_ema", "teacher", "model", "state_dict", "module", "net", "student")


def find_weights(source: Path) -> Path:
    """Return the path of the weights file: `source` itself, or the file in the folder `source`."""
    if source.is_file():
        return source
    if not source.is_dir():
        raise WeightsError(
            f"no model at {source}: give a model folder, a run folder, a checkpoint or hf-hub:owner/name"
        )
    if (source / "recipe.json").is_file():
        raise WeightsError(
            f"{source} is an unfinished run: continue it with `vitkit train DATA --out {source} --resume`, "
            f"or extract its best weights so far with `vitkit convert {source} MODEL --to vitkit`"
        )
    if not any(source.glob("*config.json")):
        raise WeightsError(
            f"{source} is not a model folder: it contains no config.json; to load a weights file alone, name the file"
        )
    for name in STANDARD:
        if (source / name).is_file():
            return source / name
    raise WeightsError(
        f"{source} contains no weights with a known file name ({', '.join(STANDARD[:2])} …): name the file"
    )


def read_tensors(path: Path) -> tuple[Tensors, str]:
    """Return the tensors of a file by name, and a note if they were nested in a training state."""
    if path.name.endswith(INDEX):
        return _read_shards(path), ""
    if path.suffix == ".safetensors":
        return _read_safetensors(path), ""
    if path.suffix == ".npz":
        return _read_npz(path), ""
    if path.suffix in PICKLES:
        return _read_pickle(path)
    raise WeightsError(f"{path} is not a weights file: supported are {', '.join((*_SUFFIXES, INDEX))}")


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file, or raise WeightsError."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} is not valid JSON: {first_line(error)}") from error
    if not isinstance(values, dict):
        raise WeightsError(f"{path} must contain a JSON object, not {type(values).__name__}")
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
            raise WeightsError(f"{index} refers to {name!r}, which is not a weights file in its own folder: refused")
        if not (index.parent / name).is_file():
            raise WeightsError(
                f"{index.parent / name}, which {index.name} refers to, is missing: the folder is incomplete"
            )
    tensors: Tensors = {}
    for name in names:
        wanted = {key for key, file in table.items() if file == name}
        found, _ = read_tensors(index.parent / name)
        if wanted != found.keys():
            odd = sorted(wanted ^ found.keys())[0]
            raise WeightsError(f"{index} and {name} disagree about {odd}: they are not from the same model")
        tensors |= found
    return tensors


def _read_npz(path: Path) -> Tensors:
    try:
        with zipfile.ZipFile(path) as archive:
            _check_compression(archive, path)
            return {m.filename.removesuffix(".npy"): _read_npy(archive, m, path) for m in archive.infolist()}
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError, SyntaxError) as error:
        raise WeightsError(f"{path} is not a readable .npz file: {first_line(error)}") from error


def _read_npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> Tensor:
    """Return one array. Its header is checked first, because numpy would allocate whatever size the header declares."""
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, _, dtype = read_header[version](file) if version in read_header else ((), False, np.dtype(object))
    if dtype.kind not in "fiu":
        raise WeightsError(f"{path}: {member.filename} contains {dtype}, not numbers: refused")
    if math.prod(shape) * dtype.itemsize > member.file_size:
        raise WeightsError(f"{path}: {member.filename} declares {shape} of {dtype}, more than the file has: damaged")
    with archive.open(member) as file:
        array = np.lib.format.read_array(file, allow_pickle=False)
    return torch.from_numpy(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))))


def _check_compression(archive: zipfile.ZipFile, path: Path) -> None:
    packed = path.stat().st_size
    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > _MAX_COMPRESSION * packed + _SMALL:
        raise WeightsError(
            f"{path} would unpack from {packed:,} to {unpacked:,} bytes; refused: suspicious compression ratio "
            "(possible zip bomb)"
        )


def _read_pickle(path: Path) -> tuple[Tensors, str]:
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _check_compression(archive, path)
        with warnings.catch_warnings(action="ignore"):  # about pickle protocols
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except WeightsError:
        raise
    except Exception as error:  # a hostile or damaged pickle can raise anything
        raise WeightsError(f"{path} is refused: {_explain_unsafe(error)}") from error
    state, key_path = _unwrap(loaded)
    if not isinstance(state, Mapping) or not all(isinstance(k, str) for k in state):
        raise WeightsError(f"{path} must contain a dictionary of named tensors, not {type(state).__name__}")
    tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    if odd := next((key for key, value in state.items() if not isinstance(value, Tensor)), None):
        raise WeightsError(f"{path}: {odd} must be a tensor, not {type(state[odd]).__name__}")
    for key, tensor in tensors.items():
        _check_storage(tensor, key, path)
    return tensors, f"the weights are those under {key_path!r}" if key_path else ""


def _unwrap(loaded: Any, key_path: str = "") -> tuple[Any, str]:
    """Return the dictionary of tensors in a training state, and the path of keys to it."""
    if isinstance(loaded, Mapping) and not any(isinstance(v, Tensor) for v in loaded.values()):
        for name in _WEIGHT_KEYS:
            if isinstance(loaded.get(name), Mapping):
                return _unwrap(loaded[name], f"{key_path}.{name}".lstrip("."))
    return loaded, key_path


def _check_storage(tensor: Tensor, key: str, path: Path) -> None:
    """Raise if a tensor lacks storage for all its elements: by stride 0 or as a meta tensor it can declare any size."""
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not plain or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise WeightsError(f"{path}: {key} declares {tuple(tensor.shape)}, more than its storage contains: refused")


def _explain_unsafe(error: Exception) -> str:
    """Return an error message for a failure of torch.load, whose own message advises to load unsafely."""
    text = str(error)
    if named := re.search(r"GLOBAL ([\w.]+)", text):
        name = named[1].rstrip(".")
        return f"its pickle calls {name} and could run any code; use a safetensors version, or save only its tensors"
    detail = re.search(r"WeightsUnpickler error:\s*(.+)", text)
    return f"it is not a plain dictionary of tensors ({detail[1] if detail else type(error).__name__})"
