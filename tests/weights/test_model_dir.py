import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import vitkit
from vitkit.atomic import sha256
from vitkit.data.preprocess import Preprocess
from vitkit.errors import UnknownNameError, WeightsError
from vitkit.model import ModelInfo, ViT, create_model
from vitkit.model.block import Block
from vitkit.weights.convert import write_model
from vitkit.weights.load import load_model, load_with_report, read_config
from vitkit.weights.model_dir import save_model

CONFIG = dict(width=16, depth=2, heads=2, head_width=8, mlp_width=32, image_size=8, patch_size=4, num_classes=3)
INFO = ModelInfo(
    class_names=("cat", "dog", "emu"),
    preprocess=Preprocess(size=(8, 8), mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
    metrics={"val_top1": 0.9},
    data={"name": "pets"},
    license="CC0",
)


def model() -> ViT:
    return create_model(CONFIG, seed=0).eval()


def test_a_round_trip_keeps_weights_config_and_metadata(tmp_path: Path) -> None:
    original = model()
    save_model(original, tmp_path / "pets", INFO)
    loaded = load_model(tmp_path / "pets")
    images = torch.randn(2, 3, 8, 12)
    assert torch.equal(loaded(images), original(images))
    assert loaded.info == INFO
    assert loaded.config == original.config == read_config(tmp_path / "pets")
    assert not loaded.training


def test_the_info_of_a_loaded_model_is_saved_again(tmp_path: Path) -> None:
    save_model(model(), tmp_path / "a", INFO)
    vitkit.save_model(vitkit.load_model(tmp_path / "a"), tmp_path / "b")
    assert load_model(tmp_path / "b").info == INFO
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


def test_class_names_must_be_as_many_as_the_classes(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="2 class names for a model of 3 classes"):
        save_model(model(), tmp_path, INFO.replace(class_names=("cat", "dog")))


def edit_config(folder: Path, **changes: object) -> None:
    """Change the config and delete its checksum, so that the change is accepted."""
    path = folder / "config.json"
    values = json.loads(path.read_text(encoding="utf-8")) | changes
    del values["config_sha256"]
    path.write_text(json.dumps(values), encoding="utf-8")


def edit_weights(folder: Path, change: object) -> None:
    """Change the tensors and update the digest in the config, so that only the tensors are wrong."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)
    edit_config(folder, weights_sha256=sha256(path))


def flip_a_byte(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 255
    path.write_bytes(content)


DAMAGE = {
    "no such folder": (lambda f: f.rename(f.with_name("away")), "no model at"),
    "no config": (lambda f: (f / "config.json").unlink(), "contains no config.json"),
    "an unfinished run": (
        lambda f: [(f / "config.json").unlink(), (f / "recipe.json").write_text("{}", encoding="utf-8")],
        "is an unfinished run: .*--resume",
    ),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
    "other weights": (flip_a_byte, "SHA-256 differs"),
    "config is not JSON": (lambda f: (f / "config.json").write_text("{", encoding="utf-8"), "config.json is damaged"),
    "config is not an object": (
        lambda f: (f / "config.json").write_text("[]", encoding="utf-8"),
        "config.json is damaged",
    ),
    "config lacks a key": (
        lambda f: (f / "config.json").write_text('{"model_type": "vitkit"}', encoding="utf-8"),
        "damaged: KeyError",
    ),
    "another kind of model": (lambda f: edit_config(f, model_type="vit"), "model_type is 'vit'"),
    "an impossible config": (lambda f: edit_config(f, model={**CONFIG, "width": -1}), "width=-1: must be at least 1"),
    "not safetensors": (
        lambda f: ((f / "model.safetensors").write_bytes(b"hello"), edit_config(f, weights_sha256=sha256(b"hello"))),
        "not a readable safetensors file",
    ),
    "a tensor too few": (lambda f: edit_weights(f, lambda t: t.pop("norm.bias")), "the first is norm.bias"),
    "a tensor too many": (lambda f: edit_weights(f, lambda t: t.update(extra=torch.ones(1))), "such as extra"),
    "a wrong shape": (
        lambda f: edit_weights(f, lambda t: t.update({"head.bias": torch.ones(4)})),
        r"head.bias is \(4,\), expected \(3,\)",
    ),
    "NaN": (
        lambda f: edit_weights(f, lambda t: t["head.bias"].fill_(float("nan"))),
        "head.bias contains NaN",
    ),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_refused_with_one_line_that_names_it(tmp_path: Path, how: str) -> None:
    folder = save_model(model(), tmp_path / "pets", INFO)
    damage, message = DAMAGE[how]
    damage(folder)
    with pytest.raises(WeightsError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


def test_overriding_the_architecture_of_a_model_folder_is_refused(tmp_path):
    save_model(create_model("vit_nano_patch4_32"), tmp_path / "model")
    with pytest.raises(WeightsError, match="defines its own architecture; remove the `heads` override"):
        load_with_report(tmp_path / "model", config={"heads": 2})


def test_a_folder_keeps_the_keys_of_the_training_images(tmp_path: Path) -> None:
    model = create_model("vit_digits_patch2_8", num_classes=2)
    keys = {"train": np.array([3, 2**63 + 1], np.uint64), "val": np.array([4], np.uint64)}
    save_model(model, tmp_path, ModelInfo(image_keys=keys))
    loaded = load_model(tmp_path)
    assert {name: found.tolist() for name, found in loaded.info.image_keys.items()} == {
        "train": [3, 2**63 + 1], "val": [4],
    }  # fmt: skip
    (tmp_path / "images.safetensors").write_bytes(b"damaged")
    with pytest.raises(WeightsError, match=r"images\.safetensors is damaged"):
        load_model(tmp_path)
    save_model(model, tmp_path)  # without keys: those of another model do not stay
    assert not load_model(tmp_path).info.image_keys


def test_an_edited_config_is_refused_until_its_checksum_is_deleted(tmp_path: Path) -> None:
    path = save_model(model(), tmp_path / "pets", INFO) / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["preprocess"]["mean"][0] = 0.11
    path.write_text(json.dumps(values), encoding="utf-8")
    message = "was changed after it was saved .* delete its entry config_sha256 to accept the change"
    with pytest.raises(WeightsError, match=message):
        load_model(tmp_path / "pets")
    del values["config_sha256"]  # folders of older versions have none
    path.write_text(json.dumps(values), encoding="utf-8")
    assert load_model(tmp_path / "pets").info.preprocess == Preprocess(
        size=(8, 8), mean=(0.11, 0.2, 0.3), std=(0.4, 0.5, 0.6)
    )


def test_the_checksum_ignores_the_layout_of_the_config(tmp_path: Path) -> None:
    info = INFO.replace(recipe={"lr": 1e-3, "note": "größer", "steps": {1: 2.0}}, metrics={"loss": float("inf")})
    path = save_model(model(), tmp_path / "pets", info) / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(dict(reversed(values.items())), indent=7), encoding="utf-8")
    assert load_model(tmp_path / "pets").info.recipe["note"] == "größer"


class ReversedBlock(Block):
    def forward(self, x, rope=None, capture=None):
        x = x + self.mlp(self.norm2(x))
        return x + self.attn(self.norm1(x), rope, capture)


class ReversedViT(ViT):
    block_class = ReversedBlock


@torch.no_grad()
def test_a_subclass_is_saved_and_loaded_as_itself(tmp_path):
    model = create_model("vit_digits_patch2_8", model_class=ReversedViT, seed=0).eval()
    images = torch.randn(2, 1, 8, 8)
    loaded = load_model(save_model(model, tmp_path / "own"))
    assert type(loaded) is ReversedViT
    assert torch.equal(loaded(images), model(images))
    assert not torch.equal(create_model("vit_digits_patch2_8", seed=0).eval()(images), model(images))
    assert type(load_model(tmp_path / "own", num_classes=3)) is ReversedViT
    assert type(load_model(tmp_path / "own", image_size=16)) is ReversedViT
    with pytest.raises(WeightsError, match="timm cannot store a ReversedViT"):
        write_model(model, tmp_path / "timm", "timm")


def test_a_class_that_is_not_imported_is_named_with_its_module(tmp_path):
    save_model(create_model("vit_digits_patch2_8", model_class=ReversedViT), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["config_sha256"]
    (tmp_path / "config.json").write_text(json.dumps({**config, "class": "LostViT", "module": "lost"}))
    with pytest.raises(UnknownNameError, match=r"unknown model class 'LostViT'.*import lost in Python"):
        load_model(tmp_path)


def test_a_replaced_head_is_refused_by_the_name_of_its_tensor(tmp_path):
    model = create_model("vit_digits_patch2_8")
    model.head = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Linear(32, 10))
    with pytest.raises(WeightsError, match=r"cannot save this ViT: head\.0\.weight .* subclass of ViT"):
        save_model(model, tmp_path / "own")
    model = create_model("vit_digits_patch2_8")
    model.head = torch.nn.Linear(64, 3)
    with pytest.raises(WeightsError, match=r"head\.weight has another shape .*reset_classifier"):
        save_model(model, tmp_path / "own")
    assert not (tmp_path / "own").exists()
