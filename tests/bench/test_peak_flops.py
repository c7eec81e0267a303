import pytest
import torch

from vitkit.bench import peak_flops


def test_the_peak_is_the_size_of_the_product_over_its_median_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak_flops, "SHAPE", (4, 3, 2))
    monkeypatch.setattr(peak_flops, "time_calls", lambda runs, rounds: {name: [2.0, 1.0, 9.0] for name in runs})
    assert peak_flops.peak_macs_per_s() == 4 * 3 * 2 / 2.0


@pytest.mark.parametrize(("pays", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_the_product_uses_the_fastest_precision(
    pays: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak_flops, "SHAPE", (4, 3, 2))
    monkeypatch.setattr(peak_flops, "bf16_inference_pays", lambda: pays)
    used = []

    def run_once(runs: dict, rounds: int) -> dict[str, list[float]]:
        used.append(runs["product"]().dtype)
        return {"product": [1.0]}

    monkeypatch.setattr(peak_flops, "time_calls", run_once)
    peak_flops.peak_macs_per_s()
    assert used == [dtype]
