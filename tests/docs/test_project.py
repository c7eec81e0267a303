"""The files of the project around the code: versions agree, workflows run tasks that exist."""

import re
import tomllib
from pathlib import Path
from typing import Any

import dev
import pytest
import yaml

import vitkit

from .pages import ROOT

GITHUB = ROOT / ".github"
YAML = [*sorted(GITHUB.rglob("*.yml")), ROOT / "CITATION.cff"]


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_is_valid(path: Path) -> None:
    assert isinstance(read(path), dict)


def test_citation_names_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert str(citation["version"]) == vitkit.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert citation["license"] == project["license"]
    assert citation["repository-code"] == project["urls"]["Repository"]


def test_the_matrix_covers_the_oldest_and_the_newest_python_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = [found[1] for c in project["classifiers"] if (found := re.search(r":: (3\.\d+)$", c))]
    matrix = read(GITHUB / "workflows" / "ci.yml")["jobs"]["matrix"]["strategy"]["matrix"]
    assert matrix["python"] == [stated[0], stated[-1]]
    assert project["requires-python"] == f">={stated[0]}"
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}


@pytest.mark.parametrize(
    "path", [*(GITHUB / "workflows").iterdir(), ROOT / ".ci" / "run", ROOT / "Makefile"], ids=lambda path: path.name
)
def test_workflows_call_tasks_of_dev_py_that_exist(path: Path) -> None:
    called = set(re.findall(r"dev\.py (\w+)", path.read_text(encoding="utf-8")))
    assert called <= dev.TASKS.keys()
    folders = re.findall(r"\btests/\w+", path.read_text(encoding="utf-8"))
    assert all((ROOT / folder).exists() for folder in folders)


def test_the_makefile_has_every_task() -> None:
    line = next(line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if ".PHONY" in line)
    assert set(line.split()[1:]) == set(dev.TASKS)
