import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training.small import load_latest
from vitkit.errors import WorkError
from vitkit.training import checkpoint, get_recipe
from vitkit.training.train import train


def write(folder: Path, *steps: int, keep: int = 3) -> None:
    for step in steps:
        checkpoint.write_checkpoint(folder, step, {"w": torch.full((4,), float(step))}, {"note": step}, keep)


def test_a_checkpoint_round_trips(tmp_path: Path) -> None:
    write(tmp_path, 5)
    tensors, numbers = load_latest(tmp_path) or pytest.fail("nothing found")
    assert tensors["w"].tolist() == [5.0] * 4
    assert numbers["note"] == numbers["step"] == 5


def test_only_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    write(tmp_path, 1, 2, 3, 100, keep=2)
    assert sorted(p.name for p in tmp_path.glob("*.json")) == ["step-00000003.json", "step-00000100.json"]
    assert len(list(tmp_path.iterdir())) == 4


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert load_latest(tmp_path) is None


def damage_bit(path: Path) -> None:
    content = bytearray(path.with_suffix(".safetensors").read_bytes())
    content[-1] ^= 1
    path.with_suffix(".safetensors").write_bytes(content)


DAMAGE = {
    "a flipped bit": damage_bit,
    "a truncated tensor file": lambda p: p.with_suffix(".safetensors").write_bytes(b"x" * 10),
    "a missing tensor file": lambda p: p.with_suffix(".safetensors").unlink(),
    "an empty manifest": lambda p: p.write_text("", encoding="utf-8"),
    "half a manifest": lambda p: p.write_text(p.read_text(encoding="utf-8")[:20]),
    "a manifest that is no text": lambda p: p.write_bytes(b"\xff\xfe\x00"),
    "a manifest that is no object": lambda p: p.write_text("[1]", encoding="utf-8"),
    "a manifest of another file": lambda p: p.write_text(json.dumps({"sha256": "0" * 64}), encoding="utf-8"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_checkpoint_is_skipped(tmp_path: Path, how: str) -> None:
    write(tmp_path, 1, 2)
    DAMAGE[how](tmp_path / "step-00000002.json")
    _, numbers = load_latest(tmp_path) or pytest.fail("nothing found")
    assert numbers["step"] == 1


def test_only_damaged_checkpoints_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, 1)
    damage_bit(tmp_path / "step-00000001.json")
    with pytest.raises(WorkError, match=r"all checkpoints in .* are damaged \(1\)"):
        load_latest(tmp_path)


def test_a_restored_optimizer_takes_the_same_step() -> None:
    def parts() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 3)
        return layer, torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)

    def step(layer: torch.nn.Linear, adamw: torch.optim.Optimizer, seed: int) -> None:
        torch.manual_seed(seed)
        layer(torch.randn(5, 3)).square().sum().backward()
        adamw.step()
        adamw.zero_grad()

    layer, adamw = parts()
    for seed in (1, 2):
        step(layer, adamw, seed)
    tensors = {**layer.state_dict(), **checkpoint.optimizer_tensors(adamw, "o.")}
    tensors = {k: v.clone() for k, v in tensors.items()}
    step(layer, adamw, 3)

    other, fresh = parts()
    other.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("o.")})
    checkpoint.load_optimizer_tensors(fresh, "o.", tensors)
    step(other, fresh, 3)
    assert torch.equal(layer.weight, other.weight)


def test_the_best_weights_are_verified(tmp_path: Path) -> None:
    digest = checkpoint.write_best(tmp_path, 7, {"w": torch.ones(2)})
    assert checkpoint.read_best(tmp_path, 7, digest)["w"].tolist() == [1.0, 1.0]
    damage_bit(tmp_path / "best-00000007.json")
    with pytest.raises(WorkError, match="damaged"):
        checkpoint.read_best(tmp_path, 7, digest)
    with pytest.raises(WorkError, match="best weights are missing"):
        checkpoint.read_best(tmp_path, 8, digest)


def test_best_weights_that_no_checkpoint_refers_to_are_removed(tmp_path: Path) -> None:
    for step in (3, 7):
        checkpoint.write_best(tmp_path, step, {"w": torch.ones(2)})
    checkpoint.remove_stale_best(tmp_path, 7)
    assert [p.name for p in tmp_path.iterdir()] == ["best-00000007.safetensors"]


def test_best_weights_of_a_kept_checkpoint_are_kept(tmp_path: Path) -> None:
    """If the newest checkpoint is damaged, the one before it is resumed from."""
    weights = {"w": torch.ones(2)}
    for step in (3, 7, 9):
        digest = checkpoint.write_best(tmp_path, step, weights)
        best = {"step": step, "sha256": digest}
        checkpoint.write_checkpoint(tmp_path, step, weights, {"best": best}, keep=2)
        checkpoint.remove_stale_best(tmp_path, step)
    assert sorted(p.stem for p in tmp_path.glob("best-*")) == ["best-00000007", "best-00000009"]
    damage_bit(tmp_path / "step-00000009.json")
    _, numbers = load_latest(tmp_path) or pytest.fail("nothing found")
    assert numbers["step"] == 7
    assert checkpoint.read_best(tmp_path, 7, numbers["best"]["sha256"])["w"].tolist() == [1.0, 1.0]


def test_remove_partial_removes_incomplete_files_only(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    checkpoint.write_best(tmp_path, 1, {"w": torch.ones(2)})
    whole = sorted(tmp_path.iterdir())
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    (tmp_path / f".step-00000003.safetensors.{platform.node()}-{finished.pid}.tmp").write_bytes(b"half")
    (tmp_path / "step-00000003.safetensors").write_bytes(b"killed before the manifest was written")
    checkpoint.remove_incomplete(tmp_path)
    assert sorted(tmp_path.iterdir()) == whole


def test_a_run_resumes_from_an_older_checkpoint_if_the_newest_is_damaged(tmp_path: Path) -> None:
    settings = {"config.depth": 1, "budget.epochs": 0.3, "budget.validate_every": 0.01}
    settings |= {"keep.every_minutes": 0, "keep.last": 99, "machine.precision": "fp32", "machine.compile": "off"}
    recipe = get_recipe("digits").override([f"{key}={value}" for key, value in settings.items()])
    run, folder = tmp_path / "run", tmp_path / "run" / "checkpoints"
    uninterrupted = train(recipe, run, quiet=True)
    manifests = sorted(folder.glob("step-*.json"))
    bests = {b["step"]: b["sha256"] for m in manifests if (b := json.loads(m.read_text(encoding="utf-8"))["best"])}
    assert len(bests) > 2, "the test needs several"
    assert all(checkpoint.read_best(folder, step, digest) for step, digest in bests.items())
    newest = manifests[-1]
    damage_bit(newest)
    (folder / f".best-00000001.safetensors.{platform.node()}-{os.getpid()}.tmp").write_bytes(b"torn")
    assert train(recipe, run, resume=True, quiet=True).weights_sha256 == uninterrupted.weights_sha256
    assert not list(folder.glob(".*.tmp"))


def test_a_damaged_newer_checkpoint_does_not_displace_a_new_one(tmp_path: Path) -> None:
    write(tmp_path, 100)
    damage_bit(tmp_path / "step-00000100.json")
    write(tmp_path, 60, keep=1)
    _, numbers = load_latest(tmp_path) or pytest.fail("nothing found")
    assert numbers["step"] == 60


@pytest.mark.parametrize("shapes", [((4, 2), (3,)), ((4, 3),)], ids=["another shape", "one too many"])
def test_optimizer_state_of_other_parameters_is_refused(shapes: tuple[tuple[int, ...], ...]) -> None:
    def adamw(*sides: tuple[int, ...]) -> torch.optim.Optimizer:
        parameters = [torch.nn.Parameter(torch.ones(side)) for side in sides]
        for each in parameters:
            each.grad = torch.ones_like(each)
        return torch.optim.AdamW(parameters)

    saved = adamw((4, 3), (3,))
    saved.step()
    tensors = checkpoint.optimizer_tensors(saved, "optimizer.0.")
    checkpoint.load_optimizer_tensors(adamw((4, 3), (3,)), "optimizer.0.", tensors)
    with pytest.raises(WorkError, match="start a new run"):
        checkpoint.load_optimizer_tensors(adamw(*shapes), "optimizer.0.", tensors)
