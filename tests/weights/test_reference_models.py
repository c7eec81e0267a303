import pytest
import torch

from vitkit.model import create_model
from vitkit.weights.convert import write_model
from vitkit.weights.reference_models import Checkpoint, ReferenceUnavailable, import_library, run_reference

from .conftest import CONFIG


def test_a_layout_or_library_that_cannot_run_says_why(tmp_path):
    config = create_model(CONFIG).config
    with pytest.raises(ReferenceUnavailable, match="there is no reference implementation for big_vision"):
        run_reference("big_vision", Checkpoint(tmp_path, {}, config), torch.zeros(1, 3, 8, 8))
    with pytest.raises(ReferenceUnavailable, match="transformers only loads folders"):
        run_reference("hf-vit", Checkpoint(tmp_path / "vit.safetensors", {}, config), torch.zeros(1, 3, 8, 8))
    with pytest.raises(ReferenceUnavailable, match="no_such_library is not installed"):
        import_library("no_such_library.models")


@torch.no_grad()
def test_timm_gives_our_logits(tmp_path, capsys):
    pytest.importorskip("timm")
    model = create_model(CONFIG, seed=0).eval()
    written = write_model(model, tmp_path / "timm", "timm")
    images = torch.randn(2, 3, 8, 8)
    logits = run_reference("timm", Checkpoint(written.path, written.tensors, written.config, written=True), images)
    torch.testing.assert_close(logits, model(images), rtol=1e-4, atol=1e-5)
    assert capsys.readouterr() == ("", "")
