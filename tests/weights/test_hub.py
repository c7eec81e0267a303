import sys

import pytest
import torch

from vitkit.errors import MissingExtraError, WeightsError
from vitkit.model import create_model
from vitkit.weights import hub
from vitkit.weights.convert import convert, write_model
from vitkit.weights.load import load_model, load_with_report

from .conftest import CONFIG


def test_hub_names_need_the_hub_library_and_a_network_or_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(WeightsError, match="hf-hub:nobody/nothing-here is not in the cache") as caught:
        load_model("hf-hub:nobody/nothing-here")
    assert "\n" not in str(caught.value)
    with pytest.raises(WeightsError, match=r"is not a valid hub name|is not in the cache"):
        load_model("hf-hub:a/b/c/d")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vitkit\[hub\]'"):
        load_model("hf-hub:owner/name")


def test_a_cached_hub_model_loads_offline_with_its_name_as_origin(monkeypatch, tmp_path):
    """The test builds the cache with the layout of huggingface_hub."""
    model = create_model(CONFIG, seed=0)
    snapshot = tmp_path / "models--owner--name" / "snapshots" / ("a" * 40)
    write_model(model, snapshot, "timm")
    (tmp_path / "models--owner--name" / "refs").mkdir()
    (tmp_path / "models--owner--name" / "refs" / "main").write_text("a" * 40, encoding="utf-8")
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    fetched = huggingface_hub.snapshot_download
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: fetched(*a, cache_dir=tmp_path, **k))
    found, report = load_with_report("hf-hub:owner/name")
    assert torch.equal(found.norm.weight, model.norm.weight)
    assert report.source == "hf-hub:owner/name"
    converted = convert("hf-hub:owner/name", tmp_path / "hf", "hf")
    assert converted.differences[0].what.startswith("source, run by the library of timm")
    assert hub.is_name("hf-hub:owner/name")
    assert not hub.is_name("owner/name")
