import pytest

from vitkit.runtime.device import BF16, bf16_inference_pays, bf16_support, omp_threads, select_device


@pytest.mark.parametrize(
    ("capabilities", "amx", "expected"),
    [
        ({"avx2": True, "avx512_bf16": False, "amx_bf16": False}, False, BF16.EMULATED),
        ({"avx2": True, "avx512_bf16": True, "amx_bf16": False}, False, BF16.VECTOR),
        ({"avx2": True, "avx512_bf16": True, "amx_bf16": True}, True, BF16.MATRIX),
        ({"cpu_name": "unknown"}, False, BF16.EMULATED),
    ],
)
def test_bf16_support_of_a_cpu_comes_from_its_instructions(
    capabilities: dict[str, object], amx: bool, expected: BF16, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities)
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: amx)
    assert bf16_support("cpu") is expected
    assert bf16_inference_pays("cpu") is amx


def test_gpus_have_matrix_units_for_bf16() -> None:
    assert bf16_support("cuda:1") is BF16.MATRIX
    assert bf16_support("mps") is BF16.EMULATED
    assert BF16.EMULATED < BF16.VECTOR < BF16.MATRIX


@pytest.mark.parametrize("available", [False, True])
def test_auto_selects_a_gpu_only_if_there_is_one(available: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    assert select_device() == ("cuda" if available else "cpu")
    assert select_device("cpu") == "cpu"


@pytest.mark.parametrize(("value", "expected"), [("3", 3), ("", 0), ("4,2", 0)])
def test_omp_threads_reads_the_environment(value: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert omp_threads() == expected
