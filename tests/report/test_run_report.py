"""A report on a real short run."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitkit.errors import UsageError
from vitkit.report import figures, write_report
from vitkit.train import get_recipe, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    train(get_recipe("digits").override(["budget.epochs=1", "config.depth=2"]), folder, quiet=True)
    return folder


class Outline(HTMLParser):
    """Every element is closed where it should be; headings and addresses are collected."""

    VOID = frozenset({"meta", "link", "img", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def test_the_report_is_one_well_formed_file_that_needs_no_other(run: Path) -> None:
    page = write_report(run).read_text()
    outline = Outline()
    outline.feed(page)
    assert not outline.open
    assert [h.split(" (")[0] for h in outline.headings] == [
        "Learning curves", "What it looks at", "Where it errs", "The model", "To repeat it",
    ]  # fmt: skip
    assert outline.addresses
    assert all(address.startswith("data:") for address in outline.addresses)


def test_its_pictures_can_be_decoded(run: Path) -> None:
    page = write_report(run).read_text()
    pngs = re.findall(r"data:image/png;base64,([^']+)", page)
    svgs = re.findall(r"data:image/svg\+xml;base64,([^']+)", page)
    assert len(pngs) == 1
    assert len(svgs) == 4
    assert min(Image.open(io.BytesIO(base64.b64decode(pngs[0]))).size) > 300
    assert all(b"<svg" in base64.b64decode(svg)[:1000] for svg in svgs)


def test_the_numbers_on_the_page_are_those_of_the_run(run: Path) -> None:
    import json

    result = json.loads((run / "result.json").read_text())
    page = write_report(run).read_text()
    assert f"<strong>{result['test']['top1']:.2%}</strong>" in page
    assert f"<strong>{result['val']['top1']:.2%}</strong>" in page


def test_without_the_data_the_rest_is_still_there(run: Path, tmp_path: Path) -> None:
    import json
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    recipe = json.loads((copy / "recipe.json").read_text())
    (copy / "recipe.json").write_text(json.dumps(recipe | {"data": "<gone>.csv"}))
    page = write_report(copy).read_text()
    assert "could not be opened again" in page
    assert "<h1>&lt;gone&gt;.csv" in page
    assert "Where it errs" in page


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a finished run"):
        write_report(tmp_path)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_pictures_of_any_number_of_channels_are_drawn(channels: int) -> None:
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (8, 8, channels), dtype=np.uint8)] * 2
    sheet = figures.attention_sheet(pictures, rng.random((2, 3, 2, 2)), ["a", "b"], [True, False])
    sheet.savefig(io.BytesIO())
    assert len(sheet.axes) == 2 * 5


def test_smoothing_keeps_a_constant_and_its_ends() -> None:
    np.testing.assert_allclose(figures._smooth(np.full(10, 3.0), 4), 3.0)
