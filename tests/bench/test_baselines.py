import pytest
import torch

from tests.bench import TINY
from vitkit.bench import bench_training
from vitkit.bench.baselines import BASELINES, BaselineUnavailable, build_baseline
from vitkit.bench.training import competitors
from vitkit.model import ViTConfig, create_model
from vitkit.weights.reference_models import ReferenceUnavailable


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_has_as_many_weights(name: str) -> None:
    try:
        baseline = build_baseline(name, TINY)
    except BaselineUnavailable as error:
        pytest.skip(str(error))
    ours = sum(p.numel() for p in create_model(TINY).parameters())
    theirs = sum(p.numel() for p in baseline.parameters())
    # vit-pytorch has norms around its patch embedding and no bias in qkv; the others are equal.
    assert theirs == pytest.approx(ours, rel=0.06 if name == "vit-pytorch" else 0)
    assert baseline.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_a_library_that_is_not_installed_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(config: ViTConfig) -> torch.nn.Module:
        raise ReferenceUnavailable("timm is not installed")

    monkeypatch.setitem(BASELINES, "timm", ("timm", unavailable))
    results, missing = bench_training(TINY, batch_size=2, against=["timm", "tutorial"], rounds=1, memory=False)
    assert [result.name for result in results] == competitors(["tutorial"])
    expected = [name for name in competitors(["timm"]) if name.startswith("timm ")]
    assert missing == dict.fromkeys(expected, "timm is not installed: pip install timm")


def test_an_architecture_that_a_library_lacks_is_refused() -> None:
    with pytest.raises(BaselineUnavailable, match="plain ViT"):
        build_baseline("timm", TINY.replace(position="rotary"))
    with pytest.raises(BaselineUnavailable, match="does not support registers"):
        build_baseline("tutorial", TINY.replace(registers=2))
    with pytest.raises(BaselineUnavailable, match="three channels"):
        build_baseline("torchvision", TINY.replace(in_channels=1))
