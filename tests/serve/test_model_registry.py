"""Names, descriptions and cards of the served models."""

from pathlib import Path

import pytest

from vitkit.inference import Predictor
from vitkit.serve.errors import APIError
from vitkit.serve.model_registry import ServedModel, load_models, model_name

from .client import Server


def test_names_are_those_of_folders_and_files(tmp_path: Path) -> None:
    (tmp_path / "deit small.safetensors").touch()
    assert model_name("runs/pets") == model_name("runs/pets/model") == model_name("runs/pets/") == "pets"
    assert model_name(str(tmp_path / "deit small.safetensors")) == "deit-small"


def test_models_with_the_same_name_are_numbered(folders: tuple[Path, Path]) -> None:
    assert list(load_models([str(folders[0]), str(folders[0])])) == ["pets", "pets-2"]


def test_a_class_is_given_by_name_or_number(folders: tuple[Path, Path]) -> None:
    served = ServedModel("pets", Predictor(folders[0]), "")
    assert (served.class_index("dog"), served.class_index("2")) == (1, 2)
    for wanted in ("3", "-1", "unicorn"):
        with pytest.raises(APIError, match=r"expected a class name of pets or a number below 3"):
            served.class_index(wanted)


def test_a_class_whose_name_is_not_unique_is_given_by_its_number(folders: tuple[Path, Path]) -> None:
    served = ServedModel("pets", Predictor(folders[0]), "")
    served.predictor.class_names = ("crane", "dog", "crane")
    assert served.class_index("2") == 2
    with pytest.raises(APIError, match="classes 0 and 2 are named 'crane': give the index of one of them"):
        served.class_index("crane")


def test_models_are_listed_without_their_paths(server: Server, folders: tuple[Path, Path]) -> None:
    listed = server.get("/v1/models")
    assert [(m["name"], m["classes"], m["layers"]) for m in listed.json()["models"]] == [
        ("pets", ["cat", "dog", "emu"], 3),
        ("others", ["cat", "dog", "emu"], 2),
    ]
    assert str(folders[0].parent).encode() not in listed.content
    card = server.get("/v1/models/pets/card")
    assert card.headers["content-type"].startswith("text/plain")
    assert card.content.decode() == (folders[0] / "README.md").read_text("utf-8")
