"""Tables print names as they are, and keep names and numbers on one line."""

import pytest
from rich.console import Console

from vitkit.cli.output import print_json, print_table


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
