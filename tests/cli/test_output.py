"""Tables print names as they are, and keep names and numbers on one line."""

import json

import pytest
from rich.console import Console

from vitkit.cli.output import console, csv_cell, print_json, print_table, printable


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"label": "Käse", "score": 0.5})
    assert capsys.readouterr().out == '{\n  "label": "Käse",\n  "score": 0.5\n}\n'


def test_markup_in_names_is_not_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("ünï [bold]: 2 images", ["image [red]"], [["a[blink].jpg"]])
    printed = capsys.readouterr().out
    assert "ünï [bold]: 2 images" in printed
    assert "image [red]" in printed
    assert "a[blink].jpg" in printed


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_a_narrow_terminal_does_not_wrap_names_and_numbers(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitkit.cli.output.console", lambda: Console(width=columns))
    print_table(
        "", ["name", *("number",) * 8, "source"], [["vit_base_patch16_224", *range(10**6, 10**6 + 8), "a " * 40]]
    )
    printed = capsys.readouterr().out
    assert "vit_base_patch16_224" in printed
    assert all(str(10**6 + k) in printed for k in range(8))
    assert "…" not in printed
    assert printed.count("a ") >= 40


EVIL = "cat\x1b]0;title\x07\x1b[2J\x9b31m\u202etac\r"


def test_names_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(EVIL, ["class"], [[EVIL]])
    console().print(EVIL, markup=False)
    printed = capsys.readouterr().out
    assert printed.count(r"cat\x1b]0;title\x07\x1b[2J\x9b31m\u202etac\r") == 3
    assert not set(printed) & set("\x1b\x07\x9b\u202e\r")
    assert printable("Käse, 猫\n") == "Käse, 猫\n"


def test_names_in_json_are_escaped_and_read_back_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"label": EVIL})
    printed = capsys.readouterr().out
    assert not set(printed) & set("\x1b\x07\x9b\u202e\r")
    assert json.loads(printed) == {"label": EVIL}


@pytest.mark.parametrize("text", ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "\t=1", " =1"])
def test_formulas_in_csv_cells_are_texts(text: str) -> None:
    assert csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["cat", "-1", "+2.5", "-", "", "a=b", 0.25, "猫"])
def test_other_csv_cells_are_unchanged(value: object) -> None:
    assert csv_cell(value) == value
