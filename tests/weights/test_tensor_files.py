"""Untrusted files: damaged or hostile ones give a one-line error, run no code and allocate no memory."""

import io
import json
import os
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitkit.model import create_model
from vitkit.weights.load import load_model, load_with_report

from .conftest import CONFIG, tensors

HUGE = 1 << 40


def test_the_plain_file_loads(tmp_path):
    save_file(tensors(), tmp_path / "vit.safetensors")
    assert load_model(tmp_path / "vit.safetensors").config.heads == 2


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_truncated_safetensors(tmp_path, refused, keep):
    save_file(tensors(), tmp_path / "vit.safetensors")
    content = (tmp_path / "vit.safetensors").read_bytes()
    (tmp_path / "vit.safetensors").write_bytes(content[:keep])
    refused(tmp_path / "vit.safetensors", "not a readable safetensors file")


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", HUGE) + b"{}",
        (lambda h: struct.pack("<Q", len(h)) + h)(
            json.dumps({"a": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}}).encode()
        ),
        (lambda h: struct.pack("<Q", len(h)) + h + bytes(8))(
            json.dumps({"a": {"dtype": "F32", "shape": [HUGE, HUGE, HUGE], "data_offsets": [0, 8]}}).encode()
        ),
    ],
    ids=["header", "data", "shape"],
)
def test_huge_sizes_declared_in_safetensors(tmp_path, refused, header):
    (tmp_path / "vit.safetensors").write_bytes(header)
    refused(tmp_path / "vit.safetensors", "not a readable safetensors file")


class Harm:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin"])
@pytest.mark.parametrize("form", ["zip", "legacy", "bare pickle"])
def test_code_in_a_pickle_is_not_run(tmp_path, refused, suffix, form):
    path, mark = tmp_path / f"vit{suffix}", tmp_path / "mark"
    state = {**tensors(), "harm": Harm(mark)}
    if form == "bare pickle":
        path.write_bytes(pickle.dumps(Harm(mark)))
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form == "zip")
    refused(
        path, "not a plain dictionary" if form == "bare pickle" else r"calls (posix|nt)\.system and could run any code"
    )
    assert not mark.exists()


def test_a_pickle_without_a_dictionary_of_tensors_is_refused(tmp_path, refused):
    path = tmp_path / "vit.pth"
    for value, message in (
        ([1, 2], "must contain a dictionary of named tensors, not list"),
        ({"a": 1}, "a must be a tensor, not int"),
        ({1: torch.ones(1)}, "must contain a dictionary of named tensors"),
    ):
        torch.save(value, path)
        refused(path, message)
    path.write_bytes(b"not a pickle")
    refused(path, "not a plain dictionary of tensors")


def test_a_tensor_larger_than_its_storage(tmp_path, refused):
    torch.save({**tensors(), "pos_embed": torch.ones(1).as_strided((1, HUGE, 64), (0, 0, 0))}, tmp_path / "vit.pth")
    refused(tmp_path / "vit.pth", "pos_embed declares .*, more than its storage contains")
    torch.save({**tensors(), "pos_embed": torch.ones(1, HUGE, device="meta")}, tmp_path / "vit.pth")
    refused(tmp_path / "vit.pth", "pos_embed declares .*, more than its storage contains: refused")


def npz(path: Path, members: dict[str, bytes], compress: bool = True) -> None:
    kind = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_an_npz_zip_bomb_is_refused(tmp_path, refused):
    npz(tmp_path / "bomb.npz", {f"a{i}.npy": npy(np.zeros(1 << 22)) for i in range(4)})
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    refused(tmp_path / "bomb.npz", r"would unpack from .* refused: suspicious compression ratio \(possible zip bomb\)")


def test_a_pth_zip_bomb_is_refused(tmp_path, refused):
    npz(tmp_path / "bomb.pth", {"archive/data.pkl": bytes(1 << 27)})
    refused(tmp_path / "bomb.pth", r"would unpack from .* refused: suspicious compression ratio \(possible zip bomb\)")


def test_huge_shape_declared_in_npz(tmp_path, refused):
    header = npy(np.zeros(1)).replace(b"(1,)", f"({HUGE},)".encode())
    npz(tmp_path / "vit.npz", {"a.npy": header[: 10 + 118] + bytes(8)}, compress=False)
    refused(tmp_path / "vit.npz", "more than the file has|not a readable")


def test_objects_in_npz_are_not_unpickled(tmp_path, refused):
    mark = tmp_path / "mark"
    np.savez(tmp_path / "vit.npz", a=np.array([Harm(mark)], dtype=object))
    refused(tmp_path / "vit.npz", "contains object, not numbers")
    assert not mark.exists()


@pytest.mark.parametrize("keep", [0, 30, -30])
def test_truncated_npz(tmp_path, refused, keep):
    npz(tmp_path / "vit.npz", {"a.npy": npy(np.ones(100))})
    content = (tmp_path / "vit.npz").read_bytes()
    (tmp_path / "vit.npz").write_bytes(content[:keep])
    refused(tmp_path / "vit.npz", "not a readable .npz file")


def sharded(folder: Path) -> dict[str, str]:
    """Write two shards and their index; return its weight map."""
    folder.mkdir()
    found = sorted(tensors().items())
    table = {}
    for number, part in enumerate((found[:10], found[10:]), start=1):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file(dict(part), folder / name)
        table |= {key: name for key, _ in part}
    index(folder, table)
    config = '{"architecture": "test_vit", "model_args": {"num_heads": 2}}'
    (folder / "config.json").write_text(config, encoding="utf-8")
    return table


def index(folder: Path, table: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}), encoding="utf-8")


def test_shards_load_as_one_checkpoint(tmp_path):
    sharded(tmp_path / "m")
    model = load_model(tmp_path / "m")
    assert all(torch.equal(tensor, tensors()[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/../../x.safetensors", "c:\\x.bin", "x.py", ""]
)
def test_an_index_cannot_refer_to_files_outside_its_folder(tmp_path, refused, name):
    table = sharded(tmp_path / "m")
    save_file(tensors(), tmp_path / "secret.safetensors")
    index(tmp_path / "m", {**table, "norm.bias": name})
    refused(tmp_path / "m", "not a weights file in its own folder: refused")


BAD_INDEX = {
    "no table": ([], "no weight_map"),
    "numbers": ({"a": 1}, "no weight_map"),
    "a missing shard": ({"norm.bias": "model-00009-of-00009.safetensors"}, "is missing"),
    "a tensor too many": ({"x": "model-00001-of-00002.safetensors"}, "disagree about"),
}


@pytest.mark.parametrize(("table", "message"), BAD_INDEX.values(), ids=BAD_INDEX)
def test_an_index_that_does_not_match_its_shards_is_refused(tmp_path, refused, table, message):
    full = sharded(tmp_path / "m")
    index(tmp_path / "m", {**full, **table} if isinstance(table, dict) and message != "no weight_map" else table)
    refused(tmp_path / "m", message)


def test_other_files_and_missing_paths_are_refused(tmp_path, refused):
    (tmp_path / "notes.txt").write_text("hello", encoding="utf-8")
    refused(tmp_path / "notes.txt", "is not a weights file")
    refused(tmp_path / "nothing", "no model at")


def test_averaged_weights_are_preferred_in_a_training_state(tmp_path):
    state = create_model(CONFIG, seed=0).state_dict()
    average = {f"module.{key}": tensor + 1 for key, tensor in state.items()}
    torch.save({"epoch": 3, "model": state, "model_ema": average}, tmp_path / "last.pth")
    model, report = load_with_report(tmp_path / "last.pth")
    assert torch.equal(model.norm.bias, state["norm.bias"] + 1)
    assert "the weights are those under 'model_ema'" in report.assumed
