"""The formula for saved activations agrees with what autograd saves."""

from typing import Any

import pytest
import torch

from vitkit.data.training_batch import soft_targets
from vitkit.model import ViTConfig, create_model
from vitkit.model.dropout import dropout_layers
from vitkit.plan.activations import activations
from vitkit.plan.job import Job
from vitkit.training.loss import cross_entropy

SMALL = dict(image_size=48, patch_size=8, width=48, depth=3, heads=3, head_width=20, mlp_width=112, num_classes=7)
BATCH = 3


def saved_bytes(config: ViTConfig, precision: str = "fp32", checkpoint: bool = False) -> int:
    """Return the bytes of all storages that the graph of a loss saves, without parameters and images."""
    model = create_model(config, seed=0).train()
    model.set_grad_checkpointing(checkpoint)
    for layer in dropout_layers(model):  # as in a training run
        layer.seeds = torch.arange(BATCH, dtype=torch.int32)
    images = torch.rand(BATCH, config.in_channels, *config.image_size)
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), images)}
    weight_copies = {tuple(s) for p in model.parameters() if p.ndim >= 2 for s in (p.shape, p.shape[::-1])}
    found: dict[int, int] = {}
    alive = []  # so that no address is reused

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        is_copy = tensor.dtype == torch.bfloat16 and tuple(tensor.shape) in weight_copies
        if storage.data_ptr() not in own and not is_copy:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    targets = soft_targets(torch.arange(BATCH), config.num_classes, 0.1)
    with (
        torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"),
    ):
        cross_entropy(model(images).float(), targets)
    return sum(found.values())


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mean": dict(pooling="mean", class_token=False),
    "cls_mean": dict(pooling="cls_mean"),
    "pooled norm": dict(pooling="mean", final_norm="pooled"),
    "attention pooling": dict(pooling="attention"),
    "registers": dict(registers=4, position="sincos"),
    "distillation": dict(distillation=True),
    "rotary": dict(position="rotary"),
    "qk_norm": dict(qk_norm=True),
    "layer scale": dict(layer_scale=1e-5),
    "drop path": dict(drop_path=0.2),
    "dropout": dict(dropout=0.1),
    "attention dropout": dict(attention_dropout=0.1),
    "swiglu": dict(mlp="swiglu"),
    "quick_gelu": dict(mlp="quick_gelu", pre_norm=True),
    "linear patches": dict(patch_embed="linear"),
    "stem": dict(stem=(8, 16)),
    "hidden head": dict(head_hidden=32),
    "RMSNorm": dict(norm="rms", qk_norm=True, pre_norm=True),
    "norms inside the MLP": dict(sub_norm="mlp"),
    "norms inside both branches": dict(sub_norm="all", mlp="swiglu", patch_norm=True),
    "no final norm": dict(final_norm="none"),
    "everything": dict(
        position="rotary", qk_norm=True, layer_scale=0.1, dropout=0.1, drop_path=0.1, mlp="swiglu", registers=2,
        pre_norm=True, stem=(8,), pooling="mean",
    ),
}  # fmt: skip


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_the_formula_counts_what_autograd_saves(changes: dict[str, Any]) -> None:
    config = ViTConfig.from_dict(SMALL | changes)
    assert BATCH * activations(Job(config, BATCH)).total == pytest.approx(saved_bytes(config), rel=0.01)


BF16 = [({}, True), (dict(position="rotary"), True), (dict(mlp="swiglu"), True), (dict(qk_norm=True), True)]
BF16 += [(dict(norm="rms"), True), (dict(sub_norm="all"), True), (dict(patch_norm=True), True)]
BF16 += [({}, False), (dict(position="rotary"), False), (dict(mlp="swiglu"), False)]


@pytest.mark.parametrize(("changes", "native_bf16"), BF16)
def test_the_formula_counts_in_bf16_too(
    changes: dict[str, Any], native_bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitkit.model.sdpa._HAS_NATIVE_BF16", native_bf16)
    config = ViTConfig.from_dict(SMALL | changes)
    formula = BATCH * activations(Job(config, BATCH, precision="bf16")).total
    assert formula == pytest.approx(saved_bytes(config, "bf16"), rel=0.03)  # rotary tables are saved once per batch


def test_a_checkpointed_block_saves_only_its_input() -> None:
    config = ViTConfig.from_dict(SMALL)
    one, two = (saved_bytes(config.replace(depth=depth), checkpoint=True) for depth in (1, 2))
    formula = activations(Job(config, BATCH))
    assert two - one == BATCH * formula.block_input
    per_block = saved_bytes(config.replace(depth=2)) - saved_bytes(config.replace(depth=1))
    assert per_block == BATCH * formula.block
    assert formula.checkpointed < formula.total


def test_attention_on_a_gpu_stays_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitkit.model.sdpa._HAS_NATIVE_BF16", False)
    config = ViTConfig.from_dict(SMALL)
    cpu, gpu = (activations(Job(config, BATCH, precision="bf16", device=device)).block for device in ("cpu", "cuda"))
    tokens, inner = 37, 60
    assert cpu - gpu == tokens * (4 * 2 * inner + 2 * inner)
