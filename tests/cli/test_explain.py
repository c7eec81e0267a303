import json

import numpy as np
import pytest
from PIL import Image

import vitkit
from tests.explanation.test_result import named, noise
from vitkit.cli.main import main
from vitkit.explanation import METHODS


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vitkit.save_model(named(registers=1), "model")
    vitkit.save_model(named(class_token=False, pooling="mean"), "mean")
    for i, size in enumerate([(40, 90), (60, 50)]):
        Image.fromarray(noise(*size, seed=i)).save(f"{i}.png")
    Image.fromarray(noise(3, 3)).save("dot.png")
    return tmp_path


def test_figures_arrays_and_json(place, capsys):
    words = ["explain", "model", "0.png", "1.png", "--out", "out", "--class", "cat", "--heads", "--faithfulness"]
    assert main([*words, "--method", "attribution", "--model-pictures", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [i["label"] for i in answer["images"]] == ["cat", "cat"]
    drawn = {"sheet", "heads", "filters", "positions", "distance", "tokens", "faithfulness"}
    assert set(answer["files"]) == {*drawn, "numbers"}
    for name in drawn:
        assert Image.open(answer["files"][name]).format == "PNG"
    numbers = np.load(answer["files"]["numbers"])
    expected = vitkit.explain("model", ["0.png", "1.png"], "attribution", target="cat")
    np.testing.assert_allclose(numbers["maps"], expected.maps, rtol=1e-5)
    np.testing.assert_allclose(numbers["regions"], expected.regions)
    assert numbers["heads"].shape == (3, 2, 4, 3)
    row, column = answer["images"][0]["strongest_patch"]
    assert expected.maps[0, row, column] == expected.maps[0].max()
    assert {f["method"] for f in answer["faithfulness"]} == set(METHODS)
    assert answer["faithfulness"][0]["deletion"]["interval"][0] <= answer["faithfulness"][0]["deletion"]["mean"]


def test_a_class_whose_name_is_not_unique_is_given_by_its_index(place, capsys):
    cranes = named()
    cranes.info = cranes.info.replace(class_names=("crane", "bee", "cat", "crane", "emu"))
    vitkit.save_model(cranes, "cranes")
    assert main(["explain", "cranes", "0.png", "--out", "out", "--class", "crane"]) == 2
    assert "classes 0 and 3 are named 'crane': give the index of one of them" in capsys.readouterr().err
    assert main(["explain", "cranes", "0.png", "--out", "out", "--class", "3", "--json"]) == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    assert (image["label"], image["index"]) == ("crane", 3)
    assert vitkit.explain("cranes", ["0.png"], target=3).targets.tolist() == [3]


def test_a_table_by_default_and_other_formats(place, capsys):
    words = ["explain", "mean", "0.png", "--out", "a/b", "--method", "attention", "--query", "3,2", "--layer", "0"]
    assert main([*words, "--head", "1", "--format", "svg", "--patches"]) == 0
    shown = capsys.readouterr().out
    assert "attention maps of 1 images" in shown
    assert (place / "a/b/sheet.svg").read_bytes().startswith(b"<?xml")


REFUSED = {
    "smaller than a patch": (["model", "dot.png"], "dot.png has 3×3 pixels, less than one patch of 4×8"),
    "layer": (["model", "0.png", "--method", "attention", "--layer", "9"], "layer 9 is out of range"),
    "head": (["model", "0.png", "--method", "attention", "--head", "-3"], "head -3 is out of range"),
    "class": (["model", "0.png", "--class", "cta"], "unknown class 'cta'; did you mean 'cat'"),
    "class token": (["mean", "0.png", "--method", "attention", "--query", "class"], "the model has no class token"),
    "query": (
        ["model", "0.png", "--method", "rollout", "--query", "3;2"],
        "expected class, mean, or a patch as ROW,COL",
    ),
    "method": (["model", "none.png", "--method", "rolout"], "unknown method 'rolout'; did you mean 'rollout'"),
    "file": (["model", "none.png"], "no file or folder matches 'none.png'"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_one_line_and_exit_code_2_and_nothing_is_written(words, message, place, capsys):
    assert main(["explain", *words, "--out", "out"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (place / "out").exists()


def test_an_unreadable_image_is_named_and_the_others_are_explained(place, capsys):
    (place / "bad.png").write_bytes(b"not a picture")
    assert main(["explain", "model", "0.png", "bad.png", "--out", "out", "--method", "attention", "--json"]) == 1
    said = capsys.readouterr()
    assert "skipped: bad.png" in said.err
    assert [image["path"] for image in json.loads(said.out)["images"]] == ["0.png"]
    assert main(["explain", "model", "bad.png", "--out", "none"]) == 2
    assert "none of 1 images can be read" in capsys.readouterr().err


def test_many_images_are_explained_in_pieces_with_equal_results(place, capsys, monkeypatch):
    most = []
    monkeypatch.setattr("vitkit.cli.explain.IMAGES_PER_SHEET", 2)

    def counted(model, images, *args, **options):
        most.append(len(images))
        assert sorted(path.name for path in (place / "out").glob("sheet*")) == sheets[: len(most) - 1]
        return vitkit.explain(model, images, *args, **options)

    sheets = ["sheet.png", "sheet_2.png", "sheet_3.png"]
    monkeypatch.setattr("vitkit.explanation.explain", counted)
    words = ["0.png", "1.png", "1.png", "0.png", "0.png"]
    assert main(["explain", "model", *words, "--out", "out", "--method", "attention", "--json"]) == 0
    assert most == [2, 2, 1]
    answer = json.loads(capsys.readouterr().out)
    assert [i["path"] for i in answer["images"]] == words
    assert set(answer["files"]) == {"sheet", "sheet_2", "sheet_3", "numbers"}
    expected = vitkit.explain("model", words, "attention").arrays()
    with np.load(answer["files"]["numbers"]) as found:
        assert set(found.files) == set(expected)
        for name in expected:
            assert found[name].dtype == expected[name].dtype
            if expected[name].dtype.kind in "fi":
                np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6)
            else:
                assert np.array_equal(found[name], expected[name])
    assert sorted(path.name for path in (place / "out").iterdir()) == ["explanation.npz", *sheets]
