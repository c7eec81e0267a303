"""The commands as a user runs them: real processes, real exit codes."""

import errno
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

import vitkit as vitkit_package
from vitkit.__main__ import run
from vitkit.cli.main import main
from vitkit.cli.models import Models
from vitkit.cli.output import print_table
from vitkit.data.open import open_data


def vitkit(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vitkit", *words], capture_output=True, text=True, cwd=cwd, timeout=300
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    done = vitkit("train", "digits", "--out", str(folder), "--epochs", "1")
    assert done.returncode == 0, done.stderr
    return folder


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
def test_a_mistake_is_one_line_and_exit_code_2(refused: Callable[..., str], words: list[str], message: str) -> None:
    assert message in refused(*words)


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line that is said of a command that cannot be carried out; it leaves nothing behind."""

    def run(*words: str) -> str:
        monkeypatch.chdir(tmp_path)
        assert main(words) == 2
        said = capsys.readouterr().err
        assert len(said.strip().splitlines()) == 1
        assert not list(tmp_path.iterdir())
        return said

    return run


def test_a_mistake_is_one_line_of_a_process_too(tmp_path: Path) -> None:
    done = vitkit("train", "no/such/place", "--out", "x", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["modles"], "unknown command 'modles'; did you mean 'models'?"),
        (["train", "digits"], "Missing from vitkit train: --out OUT; `vitkit train --help`"),
        (["train", "digits", "--out", "x", "--lr", "3"], "Unrecognized options: --lr"),
        (["serve", "x", "--prot", "1"], "--prot, 1; did you mean '--port'?; `vitkit serve --help` says what there is"),
        (["--modles"], "Unrecognized options: --modles; `vitkit --help` says what there is"),
        (["train", "digits", "--out", "x", "--epochs", "two"], "Error parsing --epochs: expected a number, not 'two'"),
        (["predict", "x", "y", "--top", "all"], "Error parsing --top: expected a whole number, not 'all'"),
        (["predict", "x", "y", "--batch", "all"], "Error parsing --batch: expected a whole number, not 'all'"),
        (["train", "digits", "--out", "x", "--minutes", "0"], "--minutes 0: must be above 0"),
        (["predict", "x"], "no images to name"),
        (["predict", "x", "y", "--csv", "no/such.csv"], "--csv no/such.csv: there is no folder no; make it"),
        (["explain", "x", "--out", "y"], "no images to explain"),
        (["embed", "x", "y", "--out", "no/such.npz"], "--out no/such.npz: there is no folder no; make it"),
        (["embed", "x", "y", "--out", "x.npz", "--batch", "0"], "--batch 0: must be at least 1"),
        (["plan", "x"], "Missing from vitkit plan: --model MODEL; Unrecognized options: x; `vitkit plan --help`"),
        (["summary", "vit_nano_patch4_32", "--depth", "-1"], "--depth -1: must not be negative"),
        (["bench", "vit_nano_patch4_32", "--rounds", "0"], "--rounds and --batch must be at least 1"),
        (
            ["plan", "--model", "vit_nano_patch4_32", "--plot", "no/such.png"],
            "--plot no/such.png: there is no folder no",
        ),
        (["bench", "vit_nano_patch4_32", "--plot", "no/such.png"], "--plot no/such.png: there is no folder no"),
        (["bench", "vit_nano_patch4_32", "--load", "digits", "--plot", "x.png"], "--plot has no effect with --load"),
        (["bench", "vit_nano_patch4_32", "--load", "digits", "--batch", "1", "2"], "--load takes one --batch"),
        (["bench", "vit_nano_patch4_32", "--data-dir", "x"], "--data-dir has no effect without --load"),
        (["convert", "x", "y", "--to", "hf", "--label", "kind"], "--label is for --to onnx and openvino"),
        (["explain", "x", "y", "--out", "z", "--clas", "3"], "did you mean '--class'?"),
        (["explain", "x", "y", "--out", "z", "--target", "3"], "--target, 3; `vitkit explain --help`"),
        (["report", "--run-folder", "x"], "--run-folder, x; `vitkit report --help`"),
        (["train", "digits", "--out", "x", "--epochs", "2", "--minutes", "2"], "two budgets for one run"),
    ],
)
def test_a_slip_on_the_command_line_is_one_line_too(
    refused: Callable[..., str], words: list[str], message: str
) -> None:
    assert message in refused(*words)


def test_a_disk_that_refuses_is_one_line_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def refuse(self: Models) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Models, "run", refuse)
        assert main(["models"]) == 1
    assert capsys.readouterr().err == f"vitkit: {tmp_path}: Permission denied\n"


def test_ctrl_c_while_the_commands_are_being_imported_is_one_line(
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


def test_one_class_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    for number in range(12):
        Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / "photos" / "cat" / f"{number}.png")
    done = vitkit("train", "photos", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "vitkit: photos has one class, 'cat': there is nothing to tell it from\n"
    assert not (tmp_path / "run").exists()


def test_the_version_is_told() -> None:
    assert vitkit("--version").stdout.startswith("vitkit 0.")


def test_eval_and_predict_agree_with_the_run(trained: Path, tmp_path: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    measured = json.loads(vitkit("eval", str(trained), "digits", "--json").stdout)
    assert measured["top1"] == result["test"]["top1"]
    assert measured["n"] == 359
    table = vitkit("eval", str(trained), "digits", "--split", "val", "--temperature", "--sizes", "8", "16")
    assert table.returncode == 0, table.stderr
    assert f"{result['val']['top1']:.2%}" in table.stdout

    digits = open_data("digits")
    Image.fromarray(digits.splits["test"].images[0]).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no image")
    done = vitkit("predict", str(trained), str(tmp_path), "--json", "--top", "2")
    assert done.returncode == 1, "one image was bad"
    assert "b.png: is not an image" in done.stderr
    (answer,) = json.loads(done.stdout)
    assert answer["path"].endswith("a.png")
    direct = vitkit_package.Predictor(trained)(tmp_path / "a.png", top=2)
    assert [p["label"] for p in answer["predictions"]] == [p.label for p in direct]


def test_a_report_can_be_written_again(trained: Path, tmp_path: Path) -> None:
    done = vitkit("report", str(trained), "--out", str(tmp_path / "again.html"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.html").stat().st_size > 50_000


def test_demo_tells_the_whole_story(tmp_path: Path) -> None:
    done = vitkit("demo", "--json", "--epochs", "12", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["test"]["n"] == 359
    assert result["test"]["top1"] >= 0.94
    assert len(result["predictions"]) == 5
    page = (tmp_path / result["report"]).read_text()
    assert page.count("data:image/") >= 4
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert vitkit("demo", "--epochs", "0.1", cwd=tmp_path).returncode == 0, "a demo may be run again"
    summary = vitkit("summary", "runs/demo", "--json", cwd=tmp_path)
    assert json.loads(summary.stdout)["config"]["image_size"] == [8, 8]


def test_a_ladder_leaves_a_folder_alone_that_holds_a_run(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text('{"data": "pets"}')
    done = vitkit("ladder", "digits", "--init", "x", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "holds a run of `vitkit train`, whose model would be lost" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.json"]


def test_a_run_leaves_a_folder_alone_that_holds_a_ladder(tmp_path: Path) -> None:
    (tmp_path / "ladder.json").write_text("{}")
    done = vitkit("train", "digits", "--out", str(tmp_path), "--epochs", "1")
    assert done.returncode == 2
    assert "holds a ladder, whose model would be lost: choose another --out" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ladder.json"]


def test_demo_leaves_a_folder_alone_that_is_not_a_demo(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "recipe.json").write_text('{"data": "pets"}')
    done = vitkit("demo", "--out", str(mine))
    assert done.returncode == 2
    assert "holds a run already" in done.stderr


def test_names_with_brackets_are_told_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("ünï [bold]: 2 images", ["image [red]"], [["a[blink].jpg"]])
    told = capsys.readouterr().out
    assert "ünï [bold]: 2 images" in told
    assert "image [red]" in told
    assert "a[blink].jpg" in told


@pytest.mark.parametrize("columns", [40, 80, 300])
def test_a_narrow_terminal_leaves_names_and_numbers_whole(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vitkit.cli.output.console", lambda: Console(width=columns))
    print_table(
        "", ["name", *("number",) * 8, "source"], [["vit_base_patch16_224", *range(10**6, 10**6 + 8), "a " * 40]]
    )
    told = capsys.readouterr().out
    assert "vit_base_patch16_224" in told
    assert all(str(10**6 + k) in told for k in range(8))
    assert "…" not in told
    assert told.count("a ") >= 40


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 TB")])
def test_running_out_of_memory_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: object) -> int:
        raise error

    monkeypatch.setattr("vitkit.cli.models.Models.run", run)
    assert main(["models"]) == 1
    assert capsys.readouterr().err == "vitkit: out of memory: use a smaller model, smaller images or fewer\n"
    monkeypatch.setattr("vitkit.cli.eval.Eval.run", run)
    assert main(["eval", "model", "data"]) == 1
    assert capsys.readouterr().err.startswith("vitkit: out of memory: use fewer images at a time (--batch)")


def test_another_mistake_in_the_program_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr("vitkit.cli.models.Models.run", run)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["models"])
