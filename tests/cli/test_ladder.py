import pytest

from vitkit.cli.ladder import _print_result
from vitkit.training.ladder import LadderResult, Stage


def stage(name: str, top1: float, test: dict | None = None) -> Stage:
    return Stage(name, {"top1": top1, "top1_interval": (0.1, 0.9)}, test, 2.0, 3.0, "a note", None)


def test_an_accuracy_without_a_test_split_is_called_biased(capsys: pytest.CaptureFixture[str]) -> None:
    result = LadderResult((stage("knn", 0.5), stage("probe", 0.75)), "probe", "out/model", "all stages are done")
    _print_result(result, "photos", "weights")
    printed = capsys.readouterr().out
    assert "probe ←" in printed
    assert "no test split: this accuracy is optimistically biased by model selection" in printed
    tested = {"top1": 0.5, "top1_interval": (0.1, 0.9)}
    _print_result(LadderResult((stage("knn", 0.5, tested),), "knn", None, "stopped"), "photos", "weights")
    assert "biased" not in capsys.readouterr().out
