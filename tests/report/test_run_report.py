"""The report of one run: its structure and its numbers."""

import base64
import html
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.report.conftest import NASTY
from vitkit.errors import UsageError
from vitkit.report import write_report
from vitkit.report.run import read_run
from vitkit.report.run_report import command


class Outline(HTMLParser):
    """Every element is closed where it should be; headings, addresses and pictures are collected."""

    VOID = frozenset({"meta", "link", "img", "br", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.addresses: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.styled = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        self.styled += sum(name == "style" or name.startswith("on") for name, _ in attributes)
        if tag == "img":
            self.images.append(dict(attributes))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        pass  # of drawings

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


@pytest.fixture(scope="module")
def page(runs: list[Path]) -> str:
    return write_report(runs[0]).read_text()


def test_the_report_is_one_well_formed_file_that_needs_no_other(page: str) -> None:
    outline = Outline(page)
    assert not outline.open
    assert outline.headings == [
        "Learning curves", "Performance", "Most confident mistakes", "What it looks at", "The data", "The model",
        "To repeat it",
    ]  # fmt: skip
    assert outline.addresses
    assert all(address.startswith(("data:", "#")) for address in outline.addresses)
    assert {a[1:] for a in outline.addresses if a.startswith("#")} == set(re.findall(r"<section id='([^']+)'", page))


def test_every_picture_decodes_and_says_what_it_shows(page: str) -> None:
    images = Outline(page).images
    assert len(images) > 60
    for image in images:
        assert image["alt"]
        Image.open(io.BytesIO(base64.b64decode(str(image["src"]).split(",", 1)[1]))).load()


def test_the_policy_names_the_one_style_and_the_one_script(page: str) -> None:
    import hashlib

    for tag in ("style", "script"):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page
    assert Outline(page).styled == 0  # attributes that the policy would block


def test_the_numbers_on_the_page_are_those_of_the_run(runs: list[Path], page: str) -> None:
    result = json.loads((runs[0] / "result.json").read_text())
    assert f"<strong>{result['test']['top1']:.2%}</strong>" in page
    assert f"<strong>{result['val']['top1']:.2%}</strong>" in page
    assert f"expected calibration error {result['test']['ece']:.3f}" in page
    worst = min(result["test"]["per_class"], key=lambda s: s["f1"])
    assert f"<td data-sort='{worst['f1']!r}'" in page


def test_the_cells_of_the_matrix_are_the_counts(runs: list[Path], page: str) -> None:
    confusion = np.array(json.loads((runs[0] / "result.json").read_text())["test"]["confusion"])
    cells = re.findall(r"data-cell='(\d+),(\d+)'><title>label \d, predicted \d: (\d+) of", page)
    shown = np.zeros_like(confusion)
    for i, j, n in cells:
        shown[int(i), int(j)] = int(n)
    np.testing.assert_array_equal(shown, confusion)


def test_the_curves_hold_what_was_recorded(runs: list[Path], page: str) -> None:
    charts = [json.loads(html.unescape(c)) for c in re.findall(r"data-chart='([^']+)'", page)]
    lines = {k["name"]: k["points"] for k in charts[0]["lines"]}
    recorded = [json.loads(line) for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    for name, key in (("training", "loss"), ("validation", "val_loss")):
        expected = [[m["epoch"], m[key]] for m in recorded if key in m]
        np.testing.assert_allclose(lines[name], expected, rtol=1e-5)


def test_mistakes_come_with_a_map_of_what_was_said_and_of_what_is_right(runs: list[Path], page: str) -> None:
    evaluation = read_run(runs[0]).evaluation
    assert evaluation is not None
    part = page[page.index("<section id='most-confident-mistakes'") : page.index("<section id='what-it-looks-at'")]
    said = re.findall(r"✗ said (\d), is (\d)</span>, ([\d.]+)% sure<br>(\S+?)</figcaption>", part)
    expected = [(m.predicted, m.label, f"{100 * m.score:.1f}", m.path) for m in evaluation.mistakes[:12]]
    assert said == expected
    assert part.count("<img") == 3 * len(expected) + 1  # and the ramp


def test_the_maps_are_ranked_by_faithfulness_with_noise_as_the_floor(page: str) -> None:
    part = page[page.index("How far to trust the maps") :]
    rows = re.findall(r"<tr><td>(\w+)</td><td data-sort='([-\d.]+)'", part)[:5]
    assert {name for name, _ in rows} == {"attention", "rollout", "gradient", "attribution", "random"}
    gains = [float(gain) for _, gain in rows]
    assert gains == sorted(gains, reverse=True)


def test_without_the_data_the_rest_is_still_there(runs: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    recipe = json.loads((copy / "recipe.json").read_text())
    (copy / "recipe.json").write_text(json.dumps(recipe | {"data": "<gone>.csv"}))
    page = write_report(copy).read_text()
    assert page.count("could not be opened again") == 3
    assert "<h1>&lt;gone&gt;.csv" in page
    assert "Performance" in page


def test_a_run_that_was_stopped_shows_its_curves_and_its_data(runs: list[Path], tmp_path: Path) -> None:
    copy = tmp_path / "stopped"
    shutil.copytree(runs[0], copy)
    shutil.rmtree(copy / "model")
    for path in (copy / "result.json", *copy.glob("predictions-*")):
        path.unlink()
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "lo')  # killed while it wrote
    page = write_report(copy).read_text()
    assert Outline(page).headings == ["Learning curves", "The data", "To repeat it"]
    assert "The run is not finished" in page
    assert "An augmented batch" in page
    (copy / "metrics.jsonl").unlink()
    assert "has recorded nothing yet" in write_report(copy).read_text()


def test_names_cannot_become_markup_and_broken_files_are_named(photograph_run: Path) -> None:
    page = write_report(photograph_run).read_text()
    assert not Outline(page).open
    assert "<i>" not in page
    assert html.escape(NASTY) in page
    assert "1 images cannot be read and were left out" in page
    assert re.search(r"<td>train|val</td><td>[^<]*bird/0\.jpg</td>", page)


def test_a_folder_without_a_run_is_refused(tmp_path: Path, runs: list[Path]) -> None:
    with pytest.raises(UsageError, match="not a run folder"):
        write_report(tmp_path)
    with pytest.raises(UsageError, match="no folder"):
        write_report(runs[0], tmp_path / "none" / "report.html")
    with pytest.raises(UsageError, match="no run"):
        write_report([])


def test_a_folder_is_no_place_for_a_report(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a folder; name a file in it"):
        write_report(runs[0], tmp_path)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/opt/my\\ bin/vitkit train 'my pets' --out r", "vitkit train 'my pets' --out r"),
        ("/lib/vitkit/__main__.py train pets --processes 2", "vitkit train pets --processes 2"),
        ("mine.py", "mine.py"),
        ("", ""),
    ],
)
def test_the_command_to_repeat_it_can_be_typed(given: str, shown: str) -> None:
    run = SimpleNamespace(environment={"command": given})
    assert command(run) == shown  # type: ignore[arg-type]  # of a run it looks at nothing else
