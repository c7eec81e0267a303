"""Progress bars appear on a terminal only."""

import io

import pytest
from rich.console import Console

from vitkit.data import progress_bar as progress
from vitkit.data.progress_bar import progress_bar


def test_nothing_is_printed_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("reading") as update:
        update(1, 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("in_bytes", "shown"), [(False, "3/4"), (True, "3/4 bytes")])
def test_a_terminal_shows_the_count(in_bytes: bool, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **options: Console(file=screen, force_terminal=True, width=100))
    with progress_bar("reading", in_bytes=in_bytes) as update:
        update(3, 4)
    assert "reading" in screen.getvalue()
    assert shown in screen.getvalue()
    with progress_bar("unseen", quiet=True) as update:
        update(1, 4)
    assert "unseen" not in screen.getvalue()
