"""`vitkit serve` checks its options before it loads a model."""

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from vitkit.cli.main import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no model to serve: vitkit serve MODEL"),
        (["x", "--batch", "0"], "--batch 0: must be above 0"),
        (["x", "--deadline", "-1"], "--deadline -1: must be above 0"),
        (["x", "--wait", "-1"], "--wait -1: must not be negative"),
        (["x", "--token-file", "/no/such/file"], "--token-file /no/such/file: No such file or directory"),
    ],
)
def test_bad_options_are_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"vitkit: {message}")
    assert error.count("\n") == 1


def test_a_missing_package_is_named_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec

    def without_prometheus(name: str, *rest: str) -> ModuleSpec | None:
        return None if name == "prometheus_client" else find(name, *rest)

    monkeypatch.setattr("importlib.util.find_spec", without_prometheus)
    assert main(["serve", "x"]) == 2
    assert "needs prometheus_client, which is not installed: pip install 'vitkit[serve]'" in capsys.readouterr().err
