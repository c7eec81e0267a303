"""The commands as a user runs them: real processes, real exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def vitkit(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vitkit", *words], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def test_help_lists_every_command() -> None:
    from vitkit.cli.main import COMMANDS

    done = vitkit("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert name in done.stdout


def test_models_counts_parameters_and_macs() -> None:
    done = vitkit("models", "vit_base_patch16_224", "--json")
    (row,) = json.loads(done.stdout)
    assert (row["parameters"], round(row["macs"] / 1e9, 2)) == (86_567_656, 17.58)


def test_models_is_a_table_for_people() -> None:
    done = vitkit("models", "nano")
    assert "vit_nano_patch4_32" in done.stdout
    assert "0.12" in done.stdout


def test_summary_adds_up() -> None:
    done = vitkit("summary", "vit_nano_patch4_32", "--json", "--depth", "1")
    whole, *layers = json.loads(done.stdout)["layers"]
    assert whole["parameters"] == 119_098
    assert whole["shape"] == [1, 10]
    assert {"patch_embed", "norm", "head"} <= {layer["path"] for layer in layers}


def test_summary_of_another_image_size_costs_more() -> None:
    small, large = (
        json.loads(vitkit("summary", "vit_nano_patch4_32", "--json", "--depth", "0", *more).stdout)["layers"][0]["macs"]
        for more in ([], ["--image-size", "64", "32"])
    )
    assert 2 * small < large < 3 * small


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["models", "resnet"], "unknown model 'resnet'"),
        (["summary", "vit_bse_patch16_224"], "did you mean 'vit_base_patch16_224'"),
        (["train", "no/such/place", "--out", "x"], "unknown data set 'no/such/place'"),
        (["train", "digits", "--out", "x", "--recipe", "digit"], "did you mean 'digits'"),
        (["train", "digits", "--out", "x", "--model", "vit_nano"], "unknown model 'vit_nano'"),
        (["train", "digits", "--out", "x", "--set", "optimzer.lr=1"], "did you mean 'optimizer'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, words: list[str], message: str) -> None:
    done = vitkit(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_mistyped_command_is_bad_usage() -> None:
    assert vitkit("modles").returncode == 2


def test_demo_tells_the_whole_story(tmp_path: Path) -> None:
    done = vitkit("demo", "--epochs", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["test"]["n"] == 359
    assert len(result["predictions"]) == 5
    page = (tmp_path / result["report"]).read_text()
    assert page.count("data:image/") >= 4
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert vitkit("demo", "--epochs", "0.1", cwd=tmp_path).returncode == 0, "a demo may be run again"
    summary = vitkit("summary", "runs/demo", "--json", cwd=tmp_path)
    assert json.loads(summary.stdout)["config"]["image_size"] == [8, 8]


def test_demo_leaves_a_folder_alone_that_is_not_a_demo(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "recipe.json").write_text('{"data": "pets"}')
    done = vitkit("demo", "--out", str(mine))
    assert done.returncode == 2
    assert "holds a run already" in done.stderr
