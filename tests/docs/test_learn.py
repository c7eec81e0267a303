"""Every chapter of the course runs, shows its figures, and links to the next chapter."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LEARN = ROOT / "docs" / "learn"
CHAPTERS = sorted(LEARN.glob("[0-9][0-9]_*.py"))
SHORT = {**os.environ, "VITKIT_LEARN_SHORT": "1", "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run all chapters once, in another process: they configure matplotlib and break the library on purpose."""
    out = tmp_path_factory.mktemp("learn")
    done = subprocess.run(
        [sys.executable, LEARN / "build.py", "--notebook", "--out", out], env=SHORT, capture_output=True, text=True
    )
    (out / "log.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    return out


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import build.py with a stand-in for lib, which would change the settings of this process."""
    monkeypatch.syspath_prepend(str(LEARN))
    lib = ModuleType("lib")
    lib.watchers = []
    monkeypatch.setitem(sys.modules, "lib", lib)
    monkeypatch.delitem(sys.modules, "build", raising=False)
    import build

    return build


def test_there_are_twelve_chapters_and_the_index_lists_them() -> None:
    assert [path.name[:2] for path in CHAPTERS] == [f"{n:02}" for n in range(1, 13)]
    assert re.findall(r"\]\((\d\d_\w+\.py)\)", (LEARN / "README.md").read_text(encoding="utf-8")) == [
        path.name for path in CHAPTERS
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_runs_and_shows_its_figures(path: Path, built: Path) -> None:
    page = built / f"{path.stem}.md"
    assert page.exists(), (built / "log.txt").read_text(encoding="utf-8")[-4000:]
    text = page.read_text(encoding="utf-8")
    figures = re.findall(r"!\[([^\]]+)\]\((figures/[^)]+)\)", text)
    assert figures
    for says, file in figures:
        assert len(says) > 20
        assert file.startswith(f"figures/{path.name[:2]}_")
        assert (built / file).stat().st_size > 1000
    drawn = {file.name for file in (built / "figures").glob(f"{path.name[:2]}_*")}
    assert drawn == {Path(file).name for _, file in figures}
    assert "```text\n" in text


@pytest.mark.slow
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_notebook_contains_the_same_cells_and_outputs(path: Path, built: Path) -> None:
    notebook = json.loads((built / f"{path.stem}.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells = notebook["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    assert all(source in path.read_text(encoding="utf-8") for source in sources)
    kinds = {kind for cell in cells for output in cell.get("outputs", ()) for kind in output.get("data", ())}
    assert kinds & {"image/svg+xml", "image/png"}


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_links_to_the_next(path: Path) -> None:
    """Links to chapters exist, and the last one is the next chapter."""
    names = {chapter.stem for chapter in CHAPTERS}
    links = re.findall(r"\]\((\d\d_\w+)\.md\)", path.read_text(encoding="utf-8"))
    assert set(links) <= names
    if path != CHAPTERS[-1]:
        assert links[-1] == CHAPTERS[CHAPTERS.index(path) + 1].stem


@pytest.mark.slow
def test_a_chapter_is_a_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, CHAPTERS[0]],
        env={**SHORT, "VITKIT_LEARN_OUT": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "def attention_weights" in done.stdout  # the library's own source
    assert (tmp_path / "figures" / "01_scale.svg").exists()


def test_cells_are_read_in_order(build: ModuleType, tmp_path: Path) -> None:
    chapter = tmp_path / "00_x.py"
    chapter.write_text("# %% [markdown]\n# # Title\n#\n# $x$\n\n# %%\nx = 1\n\n# %%\n\nprint(x)\n", encoding="utf-8")
    cells = build.read(chapter)
    assert [(c.kind, c.text, c.line) for c in cells] == [
        ("markdown", "# Title\n\n$x$", 2),
        ("code", "x = 1", 7),
        ("code", "print(x)", 11),
    ]


def test_the_output_of_a_cell_follows_it_in_order(build: ModuleType, tmp_path: Path) -> None:
    chapter, picture = tmp_path / "00_x.py", tmp_path / "figures" / "00_a.svg"
    chapter.write_text(
        "# %%\nimport lib\nprint('before')\n"
        f"lib.watchers[0]('figure', (__import__('pathlib').Path({str(picture)!r}), 'a drawing'))\nprint('after')\n",
        encoding="utf-8",
    )
    text = build.to_markdown(build.run(chapter), tmp_path)
    expected = ["```text\nbefore\n```", "![a drawing](figures/00_a.svg)", "```text\nafter\n```"]
    assert text.rstrip().endswith("\n\n".join(expected))


def test_a_cell_that_fails_names_its_line(build: ModuleType, tmp_path: Path) -> None:
    chapter = tmp_path / "00_x.py"
    chapter.write_text("# %%\nx = 1\n\n# %%\ny = x\nassert y == 2\n", encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        build.run(chapter)
    assert caught.traceback[-1].lineno + 1 == 6
    assert "00_x.py, line 5" in caught.value.__notes__[0]


@pytest.mark.parametrize(("short", "stops"), [("0", True), ("1", False)])
def test_a_claim_that_does_not_hold_stops_a_full_run(short: str, stops: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import lib; lib.claim('water is dry', False)"],
        env={**SHORT, "VITKIT_LEARN_SHORT": short, "PYTHONPATH": str(LEARN)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode != 0) == stops
    assert "water is dry" in done.stdout + done.stderr
