import gc
import threading
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tests.inference.conftest import small_model
from tests.training.small import SMALL, uninterrupted_and_resumed
from vitkit.data.loader import BatchLoader
from vitkit.data.training_batch import TrainingBatch, soft_targets
from vitkit.model import ViT, create_model
from vitkit.runtime.threaded_inference import torch_threads
from vitkit.training import Recipe, Result, get_recipe
from vitkit.training import trainer as loop
from vitkit.training.data_parallel import MAX_GRADIENT_VALUES, DataParallelBackward, data_parallel_cores
from vitkit.training.loss import accuracy, cross_entropy
from vitkit.training.objective import Supervised
from vitkit.training.train import train

CORES = 3
IMAGES = torch.randn(14, 3, 16, 16, generator=torch.Generator().manual_seed(0))
TARGETS = soft_targets(torch.arange(14) % 5, 5, 0.1)


@pytest.fixture(autouse=True)
def cores() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(CORES)
    yield
    torch.set_num_threads(before)


def model(**changes: object) -> ViT:
    return create_model(small_model().config.replace(num_classes=5, **changes), seed=1).train()


def work(module: nn.Module, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
    logits = module(IMAGES[rows])
    return cross_entropy(logits, TARGETS[rows]), {"accuracy": accuracy(logits, TARGETS[rows])}


def gradients(module: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in module.parameters()]


@pytest.mark.parametrize("changes", [{}, {"position": "rotary"}, {"patch_size": 4, "stem": (8, 8)}], ids=str)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_equal_the_plain_step_up_to_rounding(changes: dict, checkpointing: bool) -> None:
    net = model(**changes)
    net.set_grad_checkpointing(checkpointing)
    plain = DataParallelBackward(net, 1).backward(work, slice(0, 14), 0.7)
    expected = gradients(net)
    net.zero_grad()
    found = DataParallelBackward(net, CORES).backward(work, slice(0, 14), 0.7)
    assert_close(found, plain, rtol=1e-5, atol=1e-6)
    assert_close(gradients(net), expected, rtol=1e-4, atol=1e-6)


def test_micro_batches_add_up() -> None:
    net = model()
    DataParallelBackward(net, 1).backward(work, slice(0, 14), 1.0)
    expected, parallel = gradients(net), DataParallelBackward(net, CORES)
    net.zero_grad()
    for rows in (slice(0, 12), slice(12, 14)):  # the second is too small to be divided
        parallel.backward(work, rows, (rows.stop - rows.start) / 14)
    assert_close(gradients(net), expected, rtol=1e-4, atol=1e-6)


def test_a_batch_too_small_to_divide_runs_on_all_threads() -> None:
    asked = []

    def noting(module: nn.Module, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
        asked.append(torch.get_num_threads())
        return work(module, rows)

    with torch_threads(1):  # as in the loop
        DataParallelBackward(model(), CORES).backward(noting, slice(0, 5), 1.0)
        assert torch.get_num_threads() == 1
    assert asked == [CORES]


def test_gradients_are_deterministic() -> None:
    net = model()
    parallel, seen = DataParallelBackward(net, CORES), []
    for _ in range(10):
        net.zero_grad()
        parallel.backward(work, slice(0, 14), 1.0)
        seen.append(gradients(net))
    assert all(torch.equal(a, b) for each in seen[1:] for a, b in zip(seen[0], each, strict=True))


def test_each_core_has_its_own_images_and_thread() -> None:
    asked, all_at_once = [], threading.Barrier(CORES)

    def noting(module: nn.Module, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
        all_at_once.wait(timeout=60)
        asked.append((rows.start, rows.stop, torch.get_num_threads(), threading.current_thread().name))
        return work(module, rows)

    DataParallelBackward(model(), CORES).backward(noting, slice(0, 14), 1.0)
    assert sorted(each[:3] for each in asked) == [(0, 4, 1), (4, 9, 1), (9, 14, 1)]
    assert len({each[3] for each in asked}) == CORES
    assert torch.get_num_threads() == CORES


def test_copies_share_updated_weights() -> None:
    net = model()
    parallel = DataParallelBackward(net, CORES)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        loss, _ = parallel.backward(work, slice(0, 14), 1.0)
        with torch.no_grad():
            assert_close(loss, work(net, slice(0, 14))[0], rtol=1e-5, atol=1e-6)
        losses.append(float(loss))
        optimizer.step()
        optimizer.zero_grad()
    assert losses[2] < losses[0]


def test_frozen_parameters_and_unused_ones_stay_without_gradients() -> None:
    net = model(distillation=True)
    net.patch_embed.requires_grad_(False)

    def of_the_labels(module: ViT, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
        return module.forward_heads(IMAGES[rows])[0].square().mean(), {}

    DataParallelBackward(net, CORES).backward(of_the_labels, slice(0, 14), 1.0)
    with_gradients = {name for name, p in net.named_parameters() if p.grad is not None}
    assert "head.weight" in with_gradients
    assert not with_gradients & {"patch_embed.proj.weight", "head_dist.weight"}


def test_backward_waits_for_all_threads_when_one_fails() -> None:
    net, left = model(), []

    def failing(module: nn.Module, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
        if rows.start == 0:
            raise RuntimeError("can't allocate memory")
        loss = work(module, rows)
        left.append(rows.start)
        return loss

    parallel = DataParallelBackward(net, CORES)
    with pytest.raises(RuntimeError, match="can't allocate"):
        parallel.backward(failing, slice(0, 14), 1.0)
    assert sorted(left) == [4, 9]
    net.zero_grad()
    parallel.backward(work, slice(0, 14), 1.0)
    found = gradients(net)
    net.zero_grad()
    DataParallelBackward(net, 1).backward(work, slice(0, 14), 1.0)
    assert_close(found, gradients(net), rtol=1e-4, atol=1e-6)


def test_a_failure_releases_the_memory_of_its_tensors() -> None:
    """A step that ran out of memory is retried, and needs the memory of the failed attempt."""
    held = []

    def failing(module: nn.Module, rows: slice) -> tuple[Tensor, dict[str, Tensor]]:
        kept = module(IMAGES[rows]).sum()
        held.append(weakref.ref(kept))
        raise RuntimeError("can't allocate memory")

    parallel = DataParallelBackward(model(), CORES)
    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="can't allocate"):
            parallel.backward(failing, slice(0, 14), 1.0)
        assert len(held) == CORES
        assert all(each() is None for each in held)
    finally:
        gc.enable()


def test_large_models_other_devices_and_several_processes_use_one_core() -> None:
    assert data_parallel_cores(MAX_GRADIENT_VALUES // CORES) == CORES
    assert data_parallel_cores(MAX_GRADIENT_VALUES // CORES + 1) == 1
    assert data_parallel_cores(1000, device="cuda") == 1
    assert data_parallel_cores(1000, processes=2) == 1


def recipe(*changes: str) -> Recipe:
    short = get_recipe("digits").replace(config={**SMALL, "dropout": 0.1, "attention_dropout": 0.1})
    given = ["budget.epochs=0.2", "budget.validate_every=0.1", "augment.mixup=0.2", "machine.threads=2", *changes]
    return short.override(given)


def run(folder: Path, *changes: str, resume: bool = False) -> Result:
    return train(recipe(*changes), folder, resume=resume, quiet=True)


def test_the_loop_uses_one_thread_between_data_parallel_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[int]] = {}

    def note(where: object, name: str, thread: str) -> None:
        original = getattr(where, name)

        def noted(*given: object) -> object:
            if threading.current_thread().name.startswith(thread):
                seen.setdefault(name, set()).add(torch.get_num_threads())
            return original(*given)

        monkeypatch.setattr(where, name, noted)

    note(loop, "clip_gradients", "MainThread")
    note(loop, "predict_val", "MainThread")
    note(BatchLoader, "batch", "vitkit-map")
    run(tmp_path / "run")
    assert seen == {"clip_gradients": {1}, "batch": {1}, "predict_val": {2}}
    assert torch.get_num_threads() == CORES


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("optimizer.name=muon", "config.stem=(8, 8)"),
        ("machine.precision=bf16",),
        ("loss.class_weights=balanced", "machine.checkpoint_blocks=true", "machine.micro_batch=12"),
    ],
    ids=str,
)
def test_a_resumed_data_parallel_run_gives_the_same_bits_and_is_close_to_a_single_core_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...]
) -> None:
    cores = []
    monkeypatch.setattr(
        loop, "DataParallelBackward", lambda module, n: (cores.append(n), DataParallelBackward(module, n))[1]
    )
    uninterrupted, resumed = uninterrupted_and_resumed(recipe(*changes), tmp_path)
    assert resumed.weights_sha256 == uninterrupted.weights_sha256
    one_core = run(tmp_path / "one-core", *changes, "machine.threads=1")
    assert cores == [2, 2, 2, 1]
    rounding = 2e-2 if "machine.precision=bf16" in changes else 1e-4
    assert uninterrupted.val["nll"] == pytest.approx(one_core.val["nll"], rel=rounding)


def test_out_of_memory_in_one_thread_halves_the_micro_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Supervised.__call__

    def hungry(self: Supervised, model: nn.Module, batch: TrainingBatch) -> object:
        if len(batch) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(self, model, batch)

    expected = run(tmp_path / "small", "machine.micro_batch=8")
    monkeypatch.setattr(Supervised, "__call__", hungry)
    assert run(tmp_path / "run").weights_sha256 == expected.weights_sha256
