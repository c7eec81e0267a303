"""`vitkit plan` prints estimates, and a command that can be run as printed."""

import json
import re
from pathlib import Path

import pytest

from vitkit.cli.main import main, parse
from vitkit.model import create_model
from vitkit.plan.memory import MALLOC
from vitkit.weights.model_dir import save_model


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_memory_limit_becomes_settings_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model", "vit_base_patch16_224", "--memory", "6GB", "--batch", "64", "--epochs", "3"]
    assert main(words) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if " train " in line)
    settings, command = line.split("vitkit ", 1)
    assert settings.split() == [f"{name}={value}" for name, value in MALLOC.items()]
    recipe = parse(command.split()).resolve()
    assert recipe.batch == 64
    assert 0 < recipe.machine.micro_batch < 64
    assert recipe.budget.epochs == 3


def test_the_planned_peak_is_within_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    for budget in ("4.7GB", "6GB", "12GB"):
        found = planned(capsys, "--model", "vit_base_patch16_224", "--memory", budget)
        assert found["fits"]
        assert found["memory"]["peak"] <= found["memory"]["limit"]


def test_a_job_that_does_not_fit_gets_options_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(
        capsys, "--model", "vit_gigantic_patch14_224", "--gpus", "16", "--gpu-memory", "24GB", "--batch", "1024"
    )
    assert found["ways"][0]["micro_batch"] == 0
    assert found["fits"]
    assert found["shard"] == "full"
    assert "parallel.shard=full" in found["settings"]
    assert main(["plan", "--model", "vit_gigantic_patch14_224", "--memory", "6GB"]) == 0
    assert "does not fit" in capsys.readouterr().out


def test_every_printed_setting_exists(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(
        capsys, "--model", "vit_huge_patch14_224", "--gpus", "8", "--gpu-memory", "16GB", "--batch", "512",
        "--optimizer", "muon",
    )  # fmt: skip
    assert {s.split("=")[0] for s in found["settings"]} >= {"machine.micro_batch", "parallel.shard", "optimizer.name"}
    words = ["train", "DATA", "--out", "RUN", *(word for s in found["settings"] for word in ("--set", s))]
    recipe = parse(words).resolve()
    assert recipe.machine.micro_batch == found["micro_batch"]
    assert recipe.optimizer.name == "muon"


def test_time_follows_from_the_given_rate(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--model", "vit_tiny_patch16_224", "--images", "1000", "--batch", "100", "--utilization", "0.5")
    found = planned(capsys, *words, "--epochs", "3", "--flops", "0.2")
    assert found["steps"] == 30
    assert found["step_seconds"] == pytest.approx(6 * 1.26e9 * 100 / 0.1e12, rel=0.01)
    assert found["seconds"] == pytest.approx(30 * found["step_seconds"])
    assert planned(capsys, *words, "--minutes", "10", "--flops", "0.2")["seconds"] == pytest.approx(600, rel=0.05)


def test_calibration_measures_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, "--model", "vit_nano_patch4_32", "--images", "1000", "--batch", "64", "--calibrate")
    assert 1e-4 < found["step_seconds"] < 60


def test_the_simulation_reaches_4096_ranks(capsys: pytest.CaptureFixture[str], tmp_path) -> None:  # type: ignore[no-untyped-def]
    words = ("--model", "vit_small_patch16_224", "--gpus", "8", "--gpu-memory", "80GB", "--flops", "300")
    found = planned(capsys, *words, "--batch", "4096", "--plot", str(tmp_path / "plan.svg"))
    assert [p["ranks"] for p in found["scale"]] == [2**k for k in range(13)]
    assert all(c["exact"] for c in found["coverage"])
    assert (tmp_path / "plan.svg").read_text("utf-8").startswith("<?xml")


def test_the_printed_command_starts_the_planned_job(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_model(create_model("vit_digits_patch2_8"), tmp_path / "my model")
    words = ["--model", str(tmp_path / "my model"), "--data", "digits", "--image-size", "12", "--data-dir", "/d"]
    assert main(["plan", *words]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert said.startswith(f"vitkit train digits --init '{tmp_path / 'my model'}' --out runs/planned --epochs 20")
    assert "--data-dir /d" in said
    assert said.endswith("--set preprocess.size=12")


def test_a_job_that_fits_is_not_changed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--gpus", "8", "--gpu-memory", "80GB", "--flops", "300", "--bandwidth", "1", "--json"]
    assert main(["plan", "--model", "vit_base_patch16_224", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["shard"], found["checkpoint_activations"], found["micro_batch"]) == ("none", False, 32)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus", "8"], "--gpus needs --gpu-memory"),
        (["--gpu-memory", "80GB"], "--gpu-memory goes with --gpus"),
        (["--minutes", "5"], "--minutes needs the speed of a step: give --flops"),
        (["--simulate"], "--simulate needs the speed of a step"),
        (["--epochs", "5", "--minutes", "5"], "two budgets"),
        (["--images", "5", "--data", "digits"], "give one of them"),
        (["--memory", "lots"], "expected a size such as"),
        (["--gpus", "512", "--gpu-memory", "80GB"], "too small for 512 processes"),
        (["--flops", "1", "--bandwidth", "0"], "--bandwidth 0.0: must be above 0"),
        (["--epochs", "-5"], "--epochs -5: must be above 0"),
        (["--images", "0"], "--images 0: must be above 0"),
        (["--gpus", "8", "--gpu-memory", "80GB", "--calibrate"], "--calibrate measures this machine's CPU"),
    ],
)
def test_mistakes_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--model", "vit_tiny_patch16_224", *words]) == 2
    error = capsys.readouterr().err
    assert re.fullmatch(r"vitkit: [^\n]+\n", error)
    assert said in error
