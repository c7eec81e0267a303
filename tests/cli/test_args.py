"""Placeholders, flags and values of the command line."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import pytest
import tyro
from tyro.conf import Positional, UseAppendAction, arg

from vitkit.cli.args import flag, flags, parse_image_sizes, registry, repeat_set, with_help
from vitkit.errors import ConfigError


@dataclass(frozen=True)
class Command:
    """Do something."""

    data: Positional[str]
    """The data."""
    count: int | None = None
    """How many."""
    rate: float = 0.5
    """How fast."""
    kind: Literal["a", "b"] = "a"
    """Which kind."""
    data_dir: str | None = None
    """Where."""
    target: Annotated[str | None, arg(name="class", metavar="CLASS")] = None
    """Which class."""
    set: UseAppendAction[tuple[str, ...]] = field(default=())
    """Settings."""

    def run(self) -> int:
        return 0


def parse(*words: str) -> Command:
    command = tyro.cli(with_help(Command), args=words, registry=registry)
    assert isinstance(command, Command)
    return command


def test_values_have_their_types() -> None:
    found = parse("x", "--count", "3", "--rate", "1", "--kind", "b", "--class", "cat", "--set", "a=1", "--set", "b=2")
    assert (found.count, found.rate, found.kind, found.target, found.set) == (3, 1.0, "b", "cat", ("a=1", "b=2"))
    assert parse("x", "--count", "None").count is None
    assert parse("x").set == ()


def test_help_shows_placeholders_and_informative_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--help")
    lines = [" ".join(line.strip("│ ").split()) for line in capsys.readouterr().out.splitlines()]
    assert "--count N How many." in lines
    assert "--rate N How fast. (default: 0.5)" in lines
    assert "--kind a|b Which kind. (default: a)" in lines
    assert "--data-dir DIR Where." in lines
    assert "--class CLASS Which class." in lines


def test_the_command_itself_is_not_changed() -> None:
    before = dict(Command.__annotations__)
    with_help(Command)
    assert Command.__annotations__ == before


def test_flags_are_spelled_as_they_are_typed() -> None:
    assert flag("data_dir") == "--data-dir"
    assert flags(Command) == ["--count", "--rate", "--kind", "--data-dir", "--class", "--set"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("x --set a.b=1 c=2 --json", "x --set a.b=1 --set c=2 --json"),
        ("--set a=1 x --out y=z", "--set a=1 x --out y=z"),
        ("--set a=1 --set b=2 c=3", "--set a=1 --set b=2 --set c=3"),
        ("a=1 b=2", "a=1 b=2"),
    ],
)
def test_one_set_takes_several_assignments(words: str, expected: str) -> None:
    assert repeat_set(words.split()) == expected.split()


@pytest.mark.parametrize("words", [("160,224,288",), ("160", "224", "288"), ("160,", "224,288")])
def test_image_sizes_are_separated_by_commas_or_spaces(words: tuple[str, ...]) -> None:
    assert parse_image_sizes(words) == (160, 224, 288)


@pytest.mark.parametrize("word", ["0", "-8", "8.5", "large"])
def test_a_wrong_image_size_is_named(word: str) -> None:
    with pytest.raises(ConfigError, match=f"--sizes 224 {word}: expected image sizes"):
        parse_image_sizes(("224", word))
