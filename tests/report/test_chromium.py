"""The report in Chromium: light and dark, desktop and phone."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser import open_page
from vitkit.report import write_report
from vitkit.report.charts import moving_average


@pytest.fixture(scope="module")
def pages(runs: list[Path], photograph_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    written = {
        "one": write_report(runs[0], folder / "one.html"),
        "photographs": write_report(photograph_run, folder / "photographs.html"),
        "several": write_report([*runs, photograph_run], folder / "several.html"),
    }
    return {name: path.as_uri() for name, path in written.items()}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["one", "photographs", "several"])
def test_the_page_loads_without_errors_and_fits_the_screen(
    browser: Any, pages: dict[str, str], name: str, width: int, theme: str
) -> None:
    open_page(browser, pages[name], width, theme)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    broken = "return [...document.images].filter((i) => !i.complete || !i.naturalWidth).length"
    assert browser.execute_script(broken) == 0
    fetched = "return performance.getEntriesByType('resource').filter((e) => !e.name.startsWith('data:')).length"
    assert browser.execute_script(fetched) == 0


# Contrast of text and background by the formula of WCAG.
CONTRAST = """
const light = (c) => {
  const linear = (v) => (v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  const [r, g, b] = c.match(/[\\d.]+/g).map((v) => linear(v / 255));
  return .2126 * r + .7152 * g + .0722 * b;
};
const ground = light(getComputedStyle(document.body).backgroundColor);
const written = "h1, p, td, figcaption, .card small, .axes text, text.name, .outcome, a";
return [...document.querySelectorAll(written)].map((e) => {
  const style = getComputedStyle(e), own = light(e instanceof SVGElement ? style.fill : style.color);
  return (Math.max(own, ground) + .05) / (Math.min(own, ground) + .05);
});
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_enough_contrast(browser: Any, pages: dict[str, str], theme: str) -> None:
    open_page(browser, pages["one"], theme=theme)
    ratios = browser.execute_script(CONTRAST)
    assert len(ratios) > 100
    assert min(ratios) >= 4.5


def test_a_click_on_a_heading_sorts_up_then_down(browser: Any, pages: dict[str, str]) -> None:
    open_page(browser, pages["one"])
    table = browser.find_element("css selector", "#performance table")
    column = "return [...arguments[0].tBodies[0].rows].map((r) => r.children[arguments[1]].textContent.trim())"
    for place, read in ((0, int), (1, int), (4, lambda text: float(text.rstrip("%")))):
        button = table.find_elements("css selector", "th button")[place]
        before = sorted(read(t) for t in browser.execute_script(column, table, place))
        browser.execute_script("arguments[0].click()", button)
        assert [read(t) for t in browser.execute_script(column, table, place)] == before
        button.send_keys("\ue007")  # Enter: sorting needs no pointer
        assert [read(t) for t in browser.execute_script(column, table, place)] == before[::-1]
        heading = browser.execute_script("return arguments[0].parentElement.getAttribute('aria-sort')", button)
        assert heading == "descending"


def test_the_arrow_keys_read_a_curve_point_by_point(browser: Any, pages: dict[str, str]) -> None:
    open_page(browser, pages["one"])
    chart = browser.find_element("css selector", "figure.chart")
    points = browser.execute_script("return JSON.parse(arguments[0].dataset.chart).lines[0].points", chart)
    drawing, output = chart.find_element("css selector", "svg"), chart.find_element("css selector", "output")
    for epoch, loss in points[:3]:
        drawing.send_keys("\ue014")  # →
        said = re.match(r"epoch ([\d.]+): training ([\d.]+) · validation [\d.]+", output.text)
        assert said
        assert float(said[1]) == pytest.approx(epoch, rel=1e-3)
        assert float(said[2]) == pytest.approx(loss, rel=1e-3)


def test_the_slider_smooths_as_the_drawing_was_smoothed(browser: Any, pages: dict[str, str]) -> None:
    open_page(browser, pages["one"])
    slider = browser.find_element("css selector", ".slider input")

    def drawn(share: int) -> np.ndarray:
        browser.execute_script(f"arguments[0].value = {share}; arguments[0].dispatchEvent(new Event('input'))", slider)
        return line()

    def line() -> np.ndarray:
        path = browser.find_element("css selector", "path[data-line='0']").get_attribute("d")
        return np.array([[float(v) for v in p.split(",")] for p in path[1:].split("L")])

    at_first = line()
    np.testing.assert_allclose(drawn(5), at_first, atol=0.11)

    curve = [(float(x), float(y)) for x, y in enumerate(np.random.default_rng(0).normal(size=40))]
    browser.execute_script("charts[0].lines[0].points = arguments[0]", curve)  # a short run has too few to smooth
    place = "return arguments[0].map(([x, y]) => [charts[0].xAt(x), charts[0].yAt(y)])"
    for share in (0, 5, 30):
        expected = browser.execute_script(place, moving_average(curve, share / 100))
        np.testing.assert_allclose(drawn(share), expected, atol=0.051)


def test_runs_differ_in_dashes_and_in_colour(browser: Any, pages: dict[str, str]) -> None:
    open_page(browser, pages["several"])
    style = (
        "return [...document.querySelector('figure.chart').querySelectorAll('path[data-line]')].map((p) => {"
        "const s = getComputedStyle(p); return [s.stroke, s.strokeDasharray]})"
    )
    strokes, dashes = zip(*browser.execute_script(style), strict=True)
    assert len(set(strokes)) == len(set(dashes)) == 3
