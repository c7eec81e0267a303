"""The reference pages match the code."""

import dataclasses
import importlib.util
import inspect
import re
import subprocess
import sys
from types import ModuleType

import vitkit
from vitkit.cli.main import COMMANDS
from vitkit.model import ViTConfig

from .pages import ROOT

FOLDER = ROOT / "docs" / "reference"


def examples() -> ModuleType:
    spec = importlib.util.spec_from_file_location("examples", FOLDER / "examples.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_match_the_code() -> None:
    done = subprocess.run(
        [sys.executable, FOLDER / "build.py", "--check"], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr[-2000:]}: run python docs/reference/build.py"


def test_every_command_and_every_public_function_has_an_example() -> None:
    functions = {name for name in vitkit.__all__ if inspect.isfunction(getattr(vitkit, name))}
    assert examples().COMMANDS.keys() == COMMANDS.keys()
    assert functions <= examples().PYTHON.keys() <= set(vitkit.__all__)


def test_every_example_shows_the_command_it_stands_for() -> None:
    for command, shown in examples().COMMANDS.items():
        assert any(f"vitkit {command}" in example for example in shown), command
    for public, example in examples().PYTHON.items():
        assert f"vitkit.{public}(" in example, public


def test_every_field_of_the_config_is_in_the_table_of_options() -> None:
    table = (FOLDER / "model.md").read_text(encoding="utf-8")
    missing = {f.name for f in dataclasses.fields(ViTConfig)} - set(re.findall(r"`(\w+)", table)) - {"num_classes"}
    assert not missing
