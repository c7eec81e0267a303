"""What is found out about weights, what is assumed, and what is said of it."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

import vitkit
from vitkit.cli.main import main
from vitkit.data.preprocess import Preprocess
from vitkit.errors import MissingExtraError, UnknownNameError, WeightsError
from vitkit.model import create_model
from vitkit.weights import hub
from vitkit.weights.convert import convert, write_model
from vitkit.weights.layouts import LAYOUTS, TARGETS
from vitkit.weights.load import load_model, load_with_report
from vitkit.weights.model_dir import save_model

CONFIG = dict(width=64, depth=2, heads=1, mlp_width=32, image_size=8, patch_size=4, num_classes=3)


@pytest.fixture
def bare(tmp_path):
    path = tmp_path / "vit.safetensors"
    save_file(create_model(CONFIG, seed=0).state_dict(), path)
    return path


def test_a_bare_file_says_what_was_assumed_and_the_model_folder_keeps_it(bare, tmp_path):
    model, report = load_with_report(bare)
    said = " ".join(report.assumed)
    for words in ("heads=1", "norm_eps=1e-06", "mean 0.485 0.456 0.406"):
        assert words in said, words
    assert report.mapped == len(model.state_dict())
    assert model.info.origin["assumed"] == list(report.assumed)
    save_model(model, tmp_path / "kept")
    assert load_model(tmp_path / "kept").info.origin == model.info.origin
    assert "heads=1" in (tmp_path / "kept" / "README.md").read_text()


@pytest.mark.parametrize(
    "content",
    ['["cat", "dog", "emu"]', '{"0": "cat", "1": "dog", "2": "emu"}', '{"wnid": ["a"], "name": ["cat", "dog", "emu"]}'],
)
def test_class_names_are_read_from_the_usual_forms(bare, tmp_path, content):
    (tmp_path / "names.json").write_text(content)
    (tmp_path / "names.txt").write_text("cat\ndog\nemu\n")
    for given in (tmp_path / "names.json", str(tmp_path / "names.txt"), ["cat", "dog", "emu"]):
        assert load_model(bare, class_names=given).info.class_names == ("cat", "dog", "emu")
    with pytest.raises(WeightsError, match="2 class names for a model of 3 classes"):
        load_model(bare, class_names=["a", "b"])
    (tmp_path / "names.json").write_text('{"a": 1}')
    with pytest.raises(WeightsError, match="has no class names"):
        load_model(bare, class_names=tmp_path / "names.json")


def test_given_preprocessing_is_no_assumption(bare, tmp_path):
    seen = Preprocess(size=(8, 8), mean=(0.1, 0.2, 0.3))
    (tmp_path / "seen.json").write_text(json.dumps(seen.to_dict()))
    for given in (seen, seen.to_dict(), tmp_path / "seen.json"):
        model, report = load_with_report(bare, preprocess=given)
        assert model.info.preprocess == seen
        assert not any("preprocessing" in line for line in report.assumed)
        assert model.info.origin["assumed"] == list(report.assumed)


def test_the_average_is_taken_from_a_training_state(tmp_path):
    state = create_model(CONFIG, seed=0).state_dict()
    average = {f"module.{key}": tensor + 1 for key, tensor in state.items()}
    torch.save({"epoch": 3, "model": state, "model_ema": average}, tmp_path / "last.pth")
    model, report = load_with_report(tmp_path / "last.pth")
    assert torch.equal(model.norm.bias, state["norm.bias"] + 1)
    assert "the weights are those under 'model_ema'" in report.assumed


def test_every_layout_that_can_be_written_gives_back_the_same_tensors(tmp_path):
    for to, layouts in TARGETS.items():
        for layout in layouts:
            options = {k: v[0] for k, v in layout.supports.items() if not isinstance(v[0], type | range)}
            options |= {"layer_scale": 1.0} if layout.supports.get("layer_scale") == (float,) else {}
            options |= {"pooling": "cls_mean"} if layout.name.startswith("hf-dinov2") else {}
            options |= {"registers": 2} if layout.supports.get("registers", (0,))[0] != 0 else {}
            config = {**CONFIG, "mlp_width": 128, **options, "norm_eps": 1e-6}
            original = create_model(config, seed=1)
            written = write_model(original, tmp_path / layout.name, to)
            assert written.layout is layout
            suffix = "npz" if to == "npz" else "safetensors"
            found, report = load_with_report(tmp_path / layout.name / f"model.{suffix}", config={"image_size": 8})
            assert report.layout in (layout.name, "timm")
            for key, tensor in found.state_dict().items():
                assert torch.equal(tensor, original.state_dict()[key]), (layout.name, key)


REFUSALS = {
    "registers": ("torchvision", dict(registers=2), "registers=2"),
    "LayerScale": ("npz", dict(layer_scale=0.1), "layer_scale=0.1"),
    "rotary positions": ("timm", dict(position="rotary"), "position='rotary'"),
    "a stem": ("timm", dict(stem=(4,)), r"stem=\(4,\)"),
    "mean pooling": ("hf", dict(pooling="mean"), "hf-vit cannot store a model with pooling='mean'"),
    "wide heads": ("hf", dict(head_width=32), "2 heads of 32 in a width of 48|1 heads of 32 in a width of 64"),
    "features": ("torchvision", dict(num_classes=0), "num_classes=0"),
}


@pytest.mark.parametrize(("to", "options", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_layout_cannot_hold_is_refused_by_name(tmp_path, to, options, message):
    model = create_model({**CONFIG, **options})
    with pytest.raises(WeightsError, match=message) as caught:
        write_model(model, tmp_path / "out", to)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UnknownNameError, match="unknown layout to write 'tim'"):
        write_model(model, tmp_path / "out", "tim")


@torch.no_grad()
def test_fixed_positions_are_written_as_a_table(tmp_path):
    model = create_model({**CONFIG, "position": "sincos"}, seed=0).eval()
    write_model(model, tmp_path / "hf", "hf")
    images = torch.randn(2, 3, 8, 8)
    assert torch.allclose(load_model(tmp_path / "hf")(images), model(images), atol=1e-5)


def test_every_row_of_every_layout_names_one_of_our_tensors():
    options = [dict(), dict(distillation=True), dict(registers=1, qk_norm=True, layer_scale=0.1, pre_norm=True),
               dict(pooling="attention", final_norm="pooled", head_hidden=5)]  # fmt: skip
    ours = {key for o in options for key in create_model({**CONFIG, "depth": 1, **o}, device="meta").state_dict()}
    for layout in LAYOUTS.values():
        assert {row.ours.replace("{i}", "0") for row in layout.rows} <= ours, layout.name


def test_convert_prints_its_report(bare, tmp_path, capsys):
    assert main(["convert", str(bare), str(tmp_path / "hf"), "--to", "hf", "--num-classes", "4"]) == 0
    said = capsys.readouterr().out
    for words in ("read as", "hf-vit", "assumed: heads=1", "adapted: classes 3 → 4", "round trip"):
        assert words in said, words
    assert main(["convert", str(bare), str(tmp_path / "v"), "--to", "vitkit", "--json", "--set", "norm_eps=1e-5"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["read"]["config"]["norm_eps"] == 1e-5
    assert {d["what"]: d["difference"] for d in report["differences"]}["round trip"] == 0
    assert main(["convert", str(bare), str(tmp_path / "x"), "--to", "tim"]) == 2
    assert "did you mean 'timm'" in capsys.readouterr().err
    assert main(["convert", str(bare), str(tmp_path / "x"), "--to", "timm", "--int8"]) == 2
    assert "--int8 is for --to onnx and openvino" in capsys.readouterr().err


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
    """The cache as huggingface_hub lays it out."""
    model = create_model(CONFIG, seed=0)
    snapshot = tmp_path / "models--owner--name" / "snapshots" / ("a" * 40)
    write_model(model, snapshot, "timm")
    (tmp_path / "models--owner--name" / "refs").mkdir()
    (tmp_path / "models--owner--name" / "refs" / "main").write_text("a" * 40)
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


@pytest.fixture
def deit(shared_data):
    path = shared_data / "deit_tiny_patch16_224_in1k.safetensors"
    if not path.is_file():
        pytest.skip(f"no {path.name} in {shared_data}")
    return path, shared_data / "imagenet1k_classes.json"


def photographs(folder):
    from PIL import Image

    data = pytest.importorskip("skimage.data", reason="pip install 'vitkit[dev]'")
    for name in ("chelsea", "coffee"):
        Image.fromarray(getattr(data, name)()).save(folder / f"{name}.png")


def test_real_weights_name_a_cat_and_an_espresso(deit, tmp_path, capsys):
    photographs(tmp_path)
    weights, names = map(str, deit)
    assert main(["predict", weights, str(tmp_path / "*.png"), "--class-names", names, "--json"]) == 0
    captured = capsys.readouterr()
    cat, coffee = (answer["predictions"][0]["label"] for answer in json.loads(captured.out))
    assert "cat" in cat
    assert coffee == "espresso"
    assert "assumed: heads=3" in captured.err
    assert main(["predict", weights, str(tmp_path / "*.png")]) == 2
    assert "--class-names FILE" in capsys.readouterr().err


def test_eval_measures_real_weights_with_the_class_names_given(deit, tmp_path, capsys):
    weights, names = map(str, deit)
    for label in ("espresso", "Egyptian cat"):
        (tmp_path / "test" / label).mkdir(parents=True)
    photographs(tmp_path)
    (tmp_path / "coffee.png").rename(tmp_path / "test" / "espresso" / "a.png")
    (tmp_path / "chelsea.png").rename(tmp_path / "test" / "Egyptian cat" / "a.png")
    assert main(["eval", weights, str(tmp_path), "--class-names", names, "--split", "test", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["top1"] == 1.0


@torch.no_grad()
def test_real_weights_survive_the_way_through_every_layout(deit, tmp_path):
    original = vitkit.load_model(deit[0], class_names=deit[1])
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    expected, model = original(images), original
    for to in ("hf", "torchvision", "npz", "timm"):
        written = write_model(model, tmp_path / f"vit.{'npz' if to == 'npz' else 'safetensors'}", to)
        model = vitkit.load_model(written.path, config={"norm_eps": 1e-6})
    assert torch.equal(model(images), expected)
    source = load_file(deit[0])
    assert all(torch.equal(tensor, source[key]) for key, tensor in model.state_dict().items())
