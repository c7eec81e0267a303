import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import vitkit
from tests.training.multi_process import HALF, half_done
from vitkit.cli.convert import Convert
from vitkit.errors import WorkError
from vitkit.training import checkpoint


def test_a_checkpoint_with_a_damaged_shard_is_skipped(folder: Path, sharded: dict) -> None:
    checkpoints = half_done(folder, "damaged") / "checkpoints"
    part = sorted((checkpoints / f"step-{HALF:08d}").iterdir())[1]
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    found = checkpoint.find_latest(checkpoints)
    assert found is not None
    assert found.numbers["step"] == HALF - 1
    assert checkpoint.open_verified(checkpoints / f"step-{HALF:08d}.json") is None


def test_shards_of_an_interrupted_save_are_no_checkpoint(folder: Path, sharded: dict) -> None:
    checkpoints = half_done(folder, "torn") / "checkpoints"
    (checkpoints / f"step-{HALF:08d}.json").unlink()
    os.replace(checkpoints / f"step-{HALF - 1:08d}", checkpoints / f".step-{HALF - 1:08d}.parts")
    (checkpoints / f"step-{HALF - 1:08d}.json").unlink()
    checkpoint.remove_incomplete(checkpoints)
    assert not list(checkpoints.glob(".step-*"))
    assert not (checkpoints / f"step-{HALF:08d}").exists()
    found = checkpoint.find_latest(checkpoints)
    assert found is not None
    assert found.numbers["step"] == HALF - 2


def test_an_unfinished_sharded_run_is_converted_to_a_model_folder(folder: Path, sharded: dict) -> None:
    run = half_done(folder, "unfinished")
    assert Convert(str(run), str(folder / "so-far"), "vitkit").run() == 0
    model = vitkit.load_model(folder / "so-far")
    best = load_file(run / "checkpoints" / f"best-{HALF:08d}.safetensors")
    assert all(torch.equal(tensor, best[name]) for name, tensor in model.state_dict().items())
    assert model.info.class_names == tuple("0123456789")


def test_one_sharded_checkpoint_is_converted_to_a_model_folder(folder: Path, sharded: dict) -> None:
    run = half_done(folder, "one-checkpoint")
    assert Convert(str(run / "checkpoints" / f"step-{HALF:08d}"), str(folder / "from-checkpoint"), "vitkit").run() == 0
    best = load_file(run / "checkpoints" / f"best-{HALF:08d}.safetensors")  # the EMA, which this checkpoint has
    model = vitkit.load_model(folder / "from-checkpoint")
    assert all(torch.equal(tensor, best[name]) for name, tensor in model.state_dict().items())
    (run / "checkpoints" / "step-00000003.json").write_text("{}", encoding="utf-8")
    with pytest.raises(WorkError, match="its files do not match its manifest"):
        Convert(str(run / "checkpoints" / "step-00000003"), str(folder / "none"), "vitkit").run()
