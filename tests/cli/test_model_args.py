from pathlib import Path

import pytest
from safetensors.torch import save_file

from tests.weights.conftest import tensors
from vitkit.cli.model_args import is_checkpoint, open_config, open_model
from vitkit.errors import UnknownNameError, UsageError
from vitkit.model import ViT
from vitkit.model.variants import get_config
from vitkit.weights.load import load_model
from vitkit.weights.model_dir import save_model


@pytest.fixture
def bare(tmp_path: Path) -> str:
    save_file(tensors(), tmp_path / "vit.safetensors")
    return str(tmp_path / "vit.safetensors")


def test_assumptions_are_printed_to_stderr(bare: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = open_model(bare)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [f"vitkit: assumed: {line}" for line in model.info.origin["assumed"]]


def test_class_names_of_a_model_folder_cannot_be_replaced(bare: str, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("a\nb\nc\n", encoding="utf-8")
    assert open_model(bare, class_names=str(names)).info.class_names == ("a", "b", "c")
    folder = save_model(load_model(bare, class_names=names), tmp_path / "model")
    with pytest.raises(UsageError, match="has its own class names: remove --class-names"):
        open_model(str(folder), class_names=str(names))


def test_a_config_is_that_of_a_variant_or_of_a_checkpoint(bare: str) -> None:
    assert open_config("vit_nano_patch4_32") == (get_config("vit_nano_patch4_32"), ViT)
    assert open_config(bare)[0].width == 64
    assert is_checkpoint(bare)
    assert is_checkpoint("hf-hub:owner/name")
    assert not is_checkpoint("vit_nano_patch4_32")
    with pytest.raises(UnknownNameError, match="did you mean 'vit_nano_patch4_32'"):
        open_config("vit_nano_patch4")
