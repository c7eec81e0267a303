"""The help of every command shows placeholders and defaults without Python syntax."""

import re

import pytest

from vitkit.cli.main import COMMANDS, main


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as leaving:
        main([command, "--help"])
    assert not leaving.value.code
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_no_python_syntax(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(help_of(command, capsys).replace("│", " ").split())
    for word in ("None", "{", "(default: )", "(default: False)", "STR", "INT", "FLOAT", "PATH}"):
        assert word not in text, word


def test_informative_defaults_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of("eval", capsys)
    assert "usage: vitkit eval [-h] [OPTIONS] MODEL DATA" in text
    assert re.search(r"--batch N\s+Images per batch\. \(default: 256\)", text)
    assert "(default: 0)" in help_of("demo", capsys), "zero is a value, unlike nothing"
