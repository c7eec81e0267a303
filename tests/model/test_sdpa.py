"""All kernels compute the same attention, and bf16 training on a CPU uses the one that was measured to be fastest."""

import pytest
import torch
from torch import Tensor

from vitkit.model.attention import attention_weights
from vitkit.model.dropout import Dropout
from vitkit.model.sdpa import SHORT, attend, fused, in_float32, plain


def qkv(tokens: int, dtype: torch.dtype, grad: bool) -> list[Tensor]:
    draw = torch.Generator().manual_seed(tokens)
    return [torch.randn(2, 3, tokens, 16, generator=draw).to(dtype).requires_grad_(grad) for _ in range(3)]


@pytest.mark.parametrize("tokens", [1, 17, 65, 197])
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("kernel", [fused, in_float32, plain, attend])
def test_every_kernel_equals_the_plain_formula(kernel, tokens, dtype, near):
    q, k, v = qkv(tokens, dtype, grad=True)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    meant = (exact[0] @ exact[1].mT / 16**0.5).softmax(dim=-1) @ exact[2]
    found = kernel(q, k, v)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), meant, rtol=0, atol=near)
    sent = torch.randn(meant.shape, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    ours, theirs = torch.autograd.grad(found, (q, k, v), sent.to(dtype)), torch.autograd.grad(meant, exact, sent)
    for mine, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.double(), wanted, rtol=0, atol=near * 4)


def test_attention_weights_times_values_equal_the_kernel():
    q, k, v = qkv(65, torch.float32, grad=False)
    torch.testing.assert_close(attend(q, k, v), attention_weights(q, k) @ v, rtol=0, atol=1e-6)


HALF, FULL = torch.bfloat16, torch.float32


@pytest.mark.parametrize(("dtype", "grad", "units", "tokens", "dropout", "runs_in"), [
    (HALF, True, False, 65, 0.0, [FULL]),
    (HALF, True, True, SHORT, 0.0, []),
    (HALF, True, True, SHORT + 1, 0.0, [FULL]),
    (HALF, True, True, 65, 0.1, []),
    (FULL, True, True, 65, 0.1, []),
    (HALF, False, True, 65, 0.0, [HALF]),
    (FULL, True, True, 65, 0.0, [FULL]),
])  # fmt: skip
def test_other_kernels_run_only_bf16_training_and_dropout(monkeypatch, dtype, grad, units, tokens, dropout, runs_in):
    """`runs_in` lists the dtypes in which the fused kernel runs; it is empty for plain products."""
    seen: list[torch.dtype] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def watched(q: Tensor, *rest: Tensor, **options: float) -> Tensor:
        seen.append(q.dtype)
        return real(q, *rest, **options)

    monkeypatch.setattr("vitkit.model.sdpa.F.scaled_dot_product_attention", watched)
    monkeypatch.setattr("vitkit.model.sdpa._HAS_NATIVE_BF16", units)
    assert attend(*qkv(tokens, dtype, grad), Dropout(dropout).train()).dtype == dtype
    assert seen == runs_in


def test_under_autocast_the_output_stays_bf16():
    q, k, v = qkv(65, torch.bfloat16, grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attend(q, k, v).dtype == torch.bfloat16
