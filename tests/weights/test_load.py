"""Loading: what is inferred about weights, what is assumed, and what is reported."""

import json

import pytest

from vitkit.cli.main import main
from vitkit.data.preprocess import Preprocess
from vitkit.errors import WeightsError
from vitkit.model import ViT, create_model
from vitkit.weights import tensor_files
from vitkit.weights.convert import write_model
from vitkit.weights.load import load_model, load_with_report
from vitkit.weights.model_dir import save_model

from .conftest import CONFIG, photographs


def test_assumptions_about_a_bare_file_are_reported_and_stored_in_the_model_folder(bare, tmp_path):
    model, report = load_with_report(bare)
    said = " ".join(report.assumed)
    for words in ("heads=2", "norm_eps=1e-06", "mean 0.485 0.456 0.406"):
        assert words in said, words
    assert report.mapped == len(model.state_dict())
    assert model.info.origin["assumed"] == list(report.assumed)
    save_model(model, tmp_path / "kept")
    assert load_model(tmp_path / "kept").info.origin == model.info.origin
    assert "heads=2" in (tmp_path / "kept" / "README.md").read_text(encoding="utf-8")


def test_given_preprocessing_is_not_reported_as_an_assumption(bare, tmp_path):
    seen = Preprocess(size=(8, 8), mean=(0.1, 0.2, 0.3))
    (tmp_path / "seen.json").write_text(json.dumps(seen.to_dict()), encoding="utf-8")
    for given in (seen, seen.to_dict(), tmp_path / "seen.json"):
        model, report = load_with_report(bare, preprocess=given)
        assert model.info.preprocess == seen
        assert not any("preprocessing" in line for line in report.assumed)
        assert model.info.origin["assumed"] == list(report.assumed)


def test_given_class_names_replace_the_line_about_unsuitable_ones(bare, tmp_path):
    bare.rename(tmp_path / "model.safetensors")
    sidecar = {"architecture": "vit_tiny_patch16_224", "label_names": ["cat", "dog"]}
    (tmp_path / "config.json").write_text(json.dumps(sidecar), encoding="utf-8")
    _, report = load_with_report(tmp_path)
    assert "no class names: the 2 next to the weights do not fit 3 classes" in report.assumed
    model, given = load_with_report(tmp_path, class_names=["cat", "dog", "fox"])
    assert model.info.class_names == ("cat", "dog", "fox")
    assert list(given.assumed) == [line for line in report.assumed if "class names" not in line]
    assert model.info.origin["assumed"] == list(given.assumed)


def test_real_weights_name_a_cat_and_an_espresso(deit, tmp_path, capsys):
    photographs(tmp_path)
    weights, names = map(str, deit)
    assert main(["predict", weights, str(tmp_path / "*.png"), "--class-names", names, "--json"]) == 0
    captured = capsys.readouterr()
    cat, coffee = (answer["predictions"][0]["label"] for answer in json.loads(captured.out))
    assert "cat" in cat
    assert coffee == "espresso"
    assert "assumed: architecture=deit_tiny_patch16_224" in captured.err
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


@pytest.mark.parametrize("kind", ["model folder", "other library"])
def test_loading_parses_the_config_once_and_builds_one_model(bare, tmp_path, monkeypatch, kind):
    source = save_model(load_model(bare), tmp_path / "model") if kind == "model folder" else bare
    built, parsed = [], []
    build, parse = ViT.__init__, tensor_files.json.loads
    monkeypatch.setattr(ViT, "__init__", lambda self, *args: (built.append(1), build(self, *args))[1])
    monkeypatch.setattr(tensor_files.json, "loads", lambda text: (parsed.append(1), parse(text))[1])
    load_model(source)
    assert len(built) == 1
    assert len(parsed) == (kind == "model folder")


def test_an_architecture_is_refused_for_other_layouts_than_timms(tmp_path):
    write_model(create_model(CONFIG, seed=0), tmp_path / "hf", "hf")
    with pytest.raises(WeightsError, match="has the layout hf-vit: an architecture can be named"):
        load_model(tmp_path / "hf", architecture="vit_tiny_patch16_224")
