import pytest

from vitkit.__main__ import run


def test_ctrl_c_during_the_imports_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(name: str, *_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.__import__", interrupted)
    try:
        code = run()
    finally:
        monkeypatch.undo()
    assert code == 130
    assert capsys.readouterr().err == "vitkit: interrupted\n"
