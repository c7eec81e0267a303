"""The page in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .client import Server, noise_png
from .page import Page

BEST = ".classes li:first-child .label"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    contents = {
        "one.png": noise_png(40, 60, seed=1),
        "two.png": noise_png(60, 40, seed=2),
        "bad.png": noise_png()[:100],
        "note.txt": b"text",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in contents}


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Page]:
    found = Page(browser, server.address)
    yield found
    assert not found.complaints()


def test_upload_hover_sliders_and_explanations(page: Page, server: Server, files: dict[str, Path]) -> None:
    page.upload(files["one.png"])
    expected = server.post("/v1/predict?top=3", files["one.png"].read_bytes()).json()["results"][0]["predictions"]
    assert [e.text for e in page.all(".classes .label")] == [p["label"] for p in expected]
    assert page.text(".classes li:first-child .score").startswith(f"{100 * expected[0]['score']:.1f}"[:3])
    assert "Layer 3 of 3, mean of 2 heads: the class token's attention" in page.text(".about")

    summary = page.pixels()
    page.point(0.6, 0.1)
    assert "attention of patch (1, 3)" in page.text(".about")
    hovered = page.pixels()
    assert hovered != summary
    page.point(0.6, 0.1, click=True)
    page.run("document.querySelector('.stage canvas').dispatchEvent(new PointerEvent('pointerleave'))")
    assert "patch (1, 3)" in page.text(".about")

    page.slide("layer", 1)
    assert "Layer 1 of 3, mean of 2 heads: attention of patch (1, 3)" in page.text(".about")
    first = page.pixels()
    assert first != hovered
    page.slide("head", 2)
    assert "Layer 1 of 3, head 2: attention of patch (1, 3)" in page.text(".about")
    assert page.pixels() != first
    page.slide("opacity", 0)
    bare = page.pixels()
    page.slide("opacity", 100)
    assert page.pixels() != bare

    page.run("document.querySelector('.classes li:nth-child(2) button').click()")
    page.wait(lambda: "Attribution for" in page.text(".about"))
    assert expected[1]["label"] in page.text(".about")
    for method in ("rollout", "gradient", "occlusion"):
        page.run(f"document.querySelector('[value={method}]').click()")
        page.wait(lambda m=method: page.text(".about").lower().startswith(m))


def test_everything_works_with_the_keyboard(page: Page, files: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    page.upload(files["one.png"])
    canvas = page.find(".stage canvas")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert "attention of patch (3, 3)" in page.text(".about")
    canvas.send_keys(Keys.ARROW_UP, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert "attention of patch (2, 1)" in page.text(".about")
    canvas.send_keys("[", ".")
    assert "Layer 2 of 3, head 1: attention of patch (2, 1)" in page.text(".about")
    canvas.send_keys(Keys.ESCAPE)
    assert "class token" in page.text(".about")


def test_the_page_shows_the_attention_of_the_model(page: Page, server: Server, files: dict[str, Path]) -> None:
    """The page decodes the binary format to the numbers of /v1/explain."""
    page.upload(files["one.png"])
    query = "method=attention&layer=1&head=0&query=2,1"
    expected = server.post(f"/v1/explain?{query}", files["one.png"].read_bytes()).json()["map"]
    script = """
        const [bytes, done] = arguments;
        const api = await import("/page/api.js");
        const data = await api.attention(new Blob([new Uint8Array(bytes)]), {});
        done([...api.weights(data, 1, 0, 1 + 2 * 4 + 1)]);
    """
    found = page.driver.execute_async_script(
        f"(async function () {{ {script} }})(...arguments)",
        list(files["one.png"].read_bytes()),
    )
    assert found == pytest.approx([value for row in expected for value in row], abs=1.01 / 510)


def test_a_bad_file_shows_an_error_and_the_next_one_works(page: Page, files: dict[str, Path]) -> None:
    page.upload(files["bad.png"])
    assert "the image: cannot be decoded" in page.text("#error")
    page.upload(files["note.txt"])
    page.wait(lambda: "not an image" in page.text("#error"))
    page.upload(files["two.png"])
    page.wait(lambda: not page.find("#error").is_displayed())
    assert page.text(BEST)


def test_samples_history_comparison_and_card(page: Page, files: dict[str, Path]) -> None:
    page.run("document.querySelector('#samples button').click()")
    page.wait(lambda: page.all(BEST))
    page.settle()
    page.upload(files["two.png"])
    page.wait(lambda: len(page.all("#history button")) == 1)
    page.run("const s = document.getElementById('compare'); s.value = 'others'; s.dispatchEvent(new Event('change'))")
    page.wait(lambda: len(page.all(".classes")) == 2 and all(e.text for e in page.all(".about")))
    page.settle()
    page.point(0.9, 0.9)
    assert [re.search(r"patch \(\d, \d\)", e.text)[0] for e in page.all(".about")] == [
        "patch (4, 4)",
        "patch (8, 8)",
    ]
    page.run("document.querySelector('#history button').click()")
    page.settle()
    page.run("document.getElementById('card').click()")
    page.wait(lambda: "# pets" in page.text("#card-text"))


def test_it_fits_a_phone_and_responds_to_taps(browser: Any, server: Server, files: dict[str, Path]) -> None:
    phone = Page(browser, server.address, width=390, height=844, theme="dark")
    phone.upload(files["one.png"])
    assert phone.run("return document.documentElement.scrollWidth") == 390
    assert phone.run("return getComputedStyle(document.body).backgroundColor") == "rgb(17, 18, 22)"
    phone.point(0.1, 0.6, click=True)
    assert "attention of patch (3, 1)" in phone.text(".about")
    assert not phone.complaints()
