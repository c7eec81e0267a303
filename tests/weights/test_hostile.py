"""Checkpoints that lie, are damaged or mean harm: one line that says what, no code run, no memory taken."""

import io
import json
import os
import pickle
import resource
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitkit.errors import WeightsError
from vitkit.model import create_model
from vitkit.weights.convert import write_model
from vitkit.weights.load import load_model

CONFIG = dict(width=64, depth=2, heads=1, mlp_width=32, image_size=8, patch_size=4, num_classes=3)
HUGE = 1 << 40


def tensors() -> dict[str, torch.Tensor]:
    return dict(create_model(CONFIG, seed=0).state_dict())


@pytest.fixture
def refused(tmp_path):
    """Load, and expect one line; the memory that was ever in use must hardly have grown."""

    def check(path: Path, message: str) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(WeightsError, match=message) as caught:
            load_model(path)
        assert "\n" not in str(caught.value)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB

    return check


def test_the_plain_file_loads(tmp_path):
    save_file(tensors(), tmp_path / "vit.safetensors")
    assert load_model(tmp_path / "vit.safetensors").config.heads == 1


CHANGES = {
    "a missing key": (
        lambda t: t.pop("blocks.1.norm2.bias"), r"is incomplete: 1 tensors are missing, the first is blocks.1.norm2"),
    "a missing block": (
        lambda t: [t.pop(k) for k in list(t) if k.startswith("blocks.0.")], r"is incomplete: blocks.0.attn"),
    "no patches": (lambda t: t.pop("patch_embed.proj.weight"), "no known Vision Transformer layout"),
    "an extra key": (
        lambda t: t.update({"lora.a": torch.ones(2)}), r"contains 1 tensors that a timm ViT does not have: lora.a"),
    "a block of a huge number": (
        lambda t: t.update({"blocks.9999.norm1.weight": torch.ones(64)}), "a block 9999 but no block 2"),
    "a wrong shape": (
        lambda t: t.update({"blocks.1.mlp.fc1.bias": torch.ones(7)}),
        r"blocks.1.mlp.fc1.bias is \(7,\), expected \(32,\)"),
    "a wrong number of axes": (
        lambda t: t.update({"pos_embed": torch.ones(5)}), r"pos_embed is \(5,\), expected 3 axes"),
    "positions of no grid": (lambda t: t.update({"pos_embed": torch.ones(1, 7, 64)}), "7 rows is not a square grid"),
    "NaN": (lambda t: t["norm.weight"].fill_(float("nan")), "norm.weight contains NaN"),
    "infinity": (lambda t: t["head.bias"].fill_(float("inf")), "head.bias contains NaN or infinite"),
    "whole numbers": (lambda t: t.update({"head.bias": torch.ones(3, dtype=torch.int8)}), "head.bias is torch.int8"),
    "nothing": (lambda t: t.clear(), "no known Vision Transformer layout"),
    "the same twice": (
        lambda t: t.update({"module.norm.weight": torch.ones(64)}),
        "norm.weight and .*norm.weight, two names of the same tensor"),
    "no patch": (lambda t: t.update({"patch_embed.proj.weight": torch.ones(64, 3, 0, 4)}), "a patch of 0×4"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_tensors_that_do_not_fit_are_named(tmp_path, refused, change, message):
    found = tensors()
    change(found)
    save_file(found, tmp_path / "vit.safetensors")
    refused(tmp_path / "vit.safetensors", message)


def test_heads_that_nothing_shows_are_asked_for(tmp_path, refused):
    found = dict(create_model({**CONFIG, "width": 48, "head_width": 12, "heads": 4}).state_dict())
    save_file(found, tmp_path / "vit.safetensors")
    refused(tmp_path / "vit.safetensors", "the tensors do not show the number of heads")
    assert load_model(tmp_path / "vit.safetensors", config={"heads": 4}).config.head_width == 12
    with pytest.raises(WeightsError, match="heads=5 does not divide the 48 rows"):
        load_model(tmp_path / "vit.safetensors", config={"heads": 5})


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
    """Unpickled, it would make a file."""

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


def test_a_pickle_of_other_things_is_refused(tmp_path, refused):
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


def test_npz_that_grows_when_unpacked(tmp_path, refused):
    npz(tmp_path / "bomb.npz", {f"a{i}.npy": npy(np.zeros(1 << 22)) for i in range(4)})
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    refused(tmp_path / "bomb.npz", r"would unpack from .* refused: suspicious compression ratio \(possible zip bomb\)")


def test_pth_that_grows_when_unpacked(tmp_path, refused):
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
    """Two shards and their index; the table of it."""
    folder.mkdir()
    found = sorted(tensors().items())
    table = {}
    for number, part in enumerate((found[:10], found[10:]), start=1):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file(dict(part), folder / name)
        table |= {key: name for key, _ in part}
    index(folder, table)
    (folder / "config.json").write_text('{"model_type": "something"}')
    return table


def index(folder: Path, table: object) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))


def test_shards_load_as_one(tmp_path):
    sharded(tmp_path / "m")
    model = load_model(tmp_path / "m")
    assert all(torch.equal(tensor, tensors()[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/../../x.safetensors", "c:\\x.bin", "x.py", ""]
)
def test_an_index_cannot_name_files_elsewhere(tmp_path, refused, name):
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
def test_an_index_that_does_not_fit(tmp_path, refused, table, message):
    full = sharded(tmp_path / "m")
    index(tmp_path / "m", {**full, **table} if isinstance(table, dict) and message != "no weight_map" else table)
    refused(tmp_path / "m", message)


BAD_CONFIGS = {
    "no JSON": ("{", "damaged"),
    "other heads": ('{"model_type": "vit", "num_attention_heads": "many"}', "heads='many'"),
    "other width": ('{"model_type": "vit", "hidden_size": 768}', "tensors show width=64, but width=768 is given"),
    "an unknown activation": ('{"model_type": "vit", "hidden_act": "relu"}', "hidden_act='relu'"),
    "a wrong size": ('{"model_type": "vit", "image_size": [8, 8, 8]}', "image_size"),
    "labels that are none": ('{"model_type": "vit", "id2label": 3}', "damaged"),
    "deep": ("[" * 100_000, "damaged"),
}


@pytest.mark.parametrize(("text", "message"), BAD_CONFIGS.values(), ids=BAD_CONFIGS)
def test_a_config_that_does_not_fit(tmp_path, refused, text, message):
    write_model(create_model(CONFIG, seed=0), tmp_path / "m", "hf")
    (tmp_path / "m" / "config.json").write_text(text)
    refused(tmp_path / "m", message)


def test_a_file_of_another_kind(tmp_path, refused):
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path / "notes.txt", "is not a weights file")
    refused(tmp_path / "nothing", "no model at")
