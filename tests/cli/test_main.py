"""The commands as a user runs them: errors are one line, exit codes tell what happened."""

import errno
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import vitkit as vitkit_package
from vitkit.cli.main import main
from vitkit.cli.models import Models
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


def test_help_groups_the_commands() -> None:
    from vitkit.cli.main import COMMANDS, GROUPS

    done = vitkit("--help")
    assert done.returncode == 0
    blocks = done.stdout.split("\n\n")
    for title, commands in GROUPS.items():
        (block,) = [block for block in blocks if block.startswith(f"{title}:\n")]
        assert re.findall(r"^  (\w+) ", block, flags=re.MULTILINE) == list(commands)
    assert len(COMMANDS) == sum(map(len, GROUPS.values())) == 16
    assert vitkit().stdout == done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["models", "resnet"], "unknown model 'resnet'"),
        (["summary", "vit_bse_patch16_224"], "did you mean 'vit_base_patch16_224'"),
        (["train", "no/such/place", "--out", "x"], "there is no file or folder 'no/such/place'"),
        (["train", "digits", "--out", "x", "--recipe", "digit"], "did you mean 'digits'"),
        (["train", "digits", "--out", "x", "--model", "vit_nano"], "unknown model 'vit_nano'"),
        (["train", "digits", "--out", "x", "--set", "optimzer.lr=1"], "did you mean 'optimizer.lr'"),
    ],
)
def test_an_unknown_name_is_one_line_and_exits_with_2(
    refused: Callable[..., str], words: list[str], message: str
) -> None:
    assert message in refused(*words)


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that fails; return its one line of error. It must leave no files."""

    def run(*words: str) -> str:
        monkeypatch.chdir(tmp_path)
        assert main(words) == 2
        error = capsys.readouterr().err
        assert len(error.strip().splitlines()) == 1
        assert not list(tmp_path.iterdir())
        return error

    return run


def test_a_wrong_command_line_is_one_line_in_a_process_too(tmp_path: Path) -> None:
    done = vitkit("train", "no/such/place", "--out", "x", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["modles"], "unknown command 'modles'; did you mean 'models'?"),
        (["train", "digits"], "missing --out OUT; see `vitkit train --help`"),
        (["train", "digits", "--out", "x", "--lr", "3"], "unknown option --lr; see `vitkit train --help`"),
        (["serve", "x", "--prot", "1"], "unknown option --prot; did you mean '--port'?; see `vitkit serve --help`"),
        (["--modles"], "unknown option --modles; see `vitkit --help`"),
        (["train", "digits", "--out", "x", "--epochs", "two"], "--epochs: expected a number, not 'two'"),
        (["predict", "x", "y", "--top", "all"], "--top: expected a whole number, not 'all'"),
        (["predict", "x", "y", "--batch", "all"], "--batch: expected auto or a whole number, not 'all'"),
        (["train", "digits", "--out", "x", "--minutes", "0"], "--minutes 0: must be above 0"),
        (["predict", "x"], "no images given"),
        (["predict", "x", "y", "--csv", "no/such.csv"], "--csv no/such.csv: folder no does not exist; create it"),
        (["explain", "x", "--out", "y"], "no images to explain"),
        (["embed", "x", "y", "--out", "no/such.npz"], "--out no/such.npz: folder no does not exist; create it"),
        (["embed", "x", "y", "--out", "x.npz", "--batch", "0"], "--batch 0: must be at least 1"),
        (["plan", "x"], "missing --model MODEL; unexpected argument 'x'; see `vitkit plan --help`"),
        (["summary", "vit_nano_patch4_32", "--depth", "-1"], "--depth -1: must not be negative"),
        (["bench", "vit_nano_patch4_32", "--rounds", "0"], "--rounds and --batch must be at least 1"),
        (
            ["plan", "--model", "vit_nano_patch4_32", "--plot", "no/such.png"],
            "--plot no/such.png: folder no does not exist",
        ),
        (["bench", "vit_nano_patch4_32", "--plot", "no/such.png"], "--plot no/such.png: folder no does not exist"),
        (["bench", "vit_nano_patch4_32", "--load", "digits", "--plot", "x.png"], "--plot has no effect with --load"),
        (["bench", "vit_nano_patch4_32", "--load", "digits", "--batch", "1", "2"], "--load takes one --batch"),
        (["bench", "vit_nano_patch4_32", "--data-dir", "x"], "--data-dir has no effect without --load"),
        (["convert", "x", "y", "--to", "hf", "--label", "kind"], "--label is for --to onnx and openvino"),
        (["explain", "x", "y", "--out", "z", "--clas", "3"], "did you mean '--class'?"),
        (["explain", "x", "y", "--out", "z", "--target", "3"], "unknown option --target; see `vitkit explain --help`"),
        (["report", "--run-folder", "x"], "unknown option --run-folder; see `vitkit report --help`"),
        (["train", "digits", "--out", "x", "--epochs", "2", "--minutes", "2"], "a run has one budget"),
        (
            ["train", "digits", "--out", "x", "--set", "batch=8", "lr=1"],
            "unknown setting 'lr'; did you mean 'optimizer.lr'?",
        ),
        (["train", "digits", "--out", "x", "y"], "unexpected argument 'y'; see `vitkit train --help`"),
        (["train", "digits", "--out"], "--out: expected OUT; see `vitkit train --help`"),
        (["plan", "--model", "x", "--shard", "half"], "--shard: expected one of none, full, not 'half'"),
        (["plan", "--model", "x", "--precision", "fp8"], "--precision: expected one of bf16, fp32, not 'fp8'"),
        (["bench", "x", "--batch", "many"], "--batch: expected N [N …]; see `vitkit bench --help`"),
        (["summary", "x", "--image-size", "large"], "--image-size: expected N [N]; see `vitkit summary --help`"),
    ],
)
def test_a_wrong_command_line_is_one_line(refused: Callable[..., str], words: list[str], message: str) -> None:
    assert message in refused(*words)


def test_an_error_of_the_file_system_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def refuse(self: Models) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Models, "run", refuse)
        assert main(["models"]) == 1
    assert capsys.readouterr().err == f"vitkit: {tmp_path}: Permission denied\n"


def test_one_class_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    for number in range(12):
        Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / "photos" / "cat" / f"{number}.png")
    done = vitkit("train", "photos", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "vitkit: photos has a single class, 'cat': training needs at least two\n"
    assert not (tmp_path / "run").exists()


def test_the_version_is_printed() -> None:
    assert vitkit("--version").stdout.startswith("vitkit 0.")


def test_eval_and_predict_agree_with_the_run(trained: Path, tmp_path: Path) -> None:
    result = json.loads((trained / "result.json").read_text("utf-8"))
    measured = json.loads(vitkit("eval", str(trained), "digits", "--json").stdout)
    assert measured["top1"] == result["test"]["top1"]
    assert measured["n"] == 359
    table = vitkit("eval", str(trained), "digits", "--split", "val", "--temperature", "--sizes", "8", "16")
    assert table.returncode == 0, table.stderr
    assert f"{result['val']['top1']:.2%}" in table.stdout

    digits = open_data("digits")
    Image.fromarray(digits.splits["test"].images[0]).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no image", encoding="utf-8")
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
    page = (tmp_path / result["report"]).read_text("utf-8")
    assert page.count("data:image/") >= 4
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert vitkit("demo", "--epochs", "0.1", cwd=tmp_path).returncode == 0, "a demo may be run again"
    summary = vitkit("summary", "runs/demo", "--json", cwd=tmp_path)
    assert json.loads(summary.stdout)["config"]["image_size"] == [8, 8]


def test_a_ladder_leaves_a_folder_alone_that_holds_a_run(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text('{"data": "pets"}', encoding="utf-8")
    done = vitkit("ladder", "digits", "--init", "x", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "holds a run of `vitkit train`, whose model would be overwritten" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.json"]


def test_a_run_leaves_a_folder_alone_that_holds_a_ladder(tmp_path: Path) -> None:
    (tmp_path / "ladder.json").write_text("{}", encoding="utf-8")
    done = vitkit("train", "digits", "--out", str(tmp_path), "--epochs", "1")
    assert done.returncode == 2
    assert "holds a ladder, whose model would be overwritten: choose another folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ladder.json"]


def test_demo_leaves_a_folder_alone_that_is_not_a_demo(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "recipe.json").write_text('{"data": "pets"}', encoding="utf-8")
    done = vitkit("demo", "--out", str(mine))
    assert done.returncode == 2
    assert "already holds a run" in done.stderr


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 1 TB")])
def test_running_out_of_memory_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: object) -> int:
        raise error

    monkeypatch.setattr("vitkit.cli.models.Models.run", run)
    assert main(["models"]) == 1
    assert capsys.readouterr().err == "vitkit: out of memory: use a smaller model, smaller images or fewer images\n"
    monkeypatch.setattr("vitkit.cli.eval.Eval.run", run)
    assert main(["eval", "model", "data"]) == 1
    assert capsys.readouterr().err.startswith("vitkit: out of memory: use a smaller batch (--batch)")


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: object) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setattr("vitkit.cli.models.Models.run", run)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["models"])
