"""Screenshots of docs/guides/serve.md: python -m tests.serve.screenshots MODEL OTHER_MODEL IMAGE OTHER_IMAGE OUT."""

import argparse
from pathlib import Path

from tests.browser import chromium

from .client import running
from .page import Page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "other_model", "image", "other_image", "out"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args()
    with running(str(asked.model), str(asked.other_model)) as server, chromium() as driver:
        page = Page(driver, server.address, height=1000)
        page.upload(asked.image.resolve())
        page.slide("layer", 6)
        page.point(0.25, 0.32, click=True)
        page.screenshot(asked.out / "serve-desktop.webp")

        page = Page(driver, server.address, height=1000, theme="dark")
        page.upload(asked.image.resolve())
        page.upload(asked.other_image.resolve())
        page.run(
            "const s = document.getElementById('compare'); s.selectedIndex = 2; s.dispatchEvent(new Event('change'))"
        )
        page.wait(lambda: len(page.all(".classes")) == 2 and all(e.text for e in page.all(".about")))
        page.settle()
        page.run("document.querySelector('[value=attribution]').click()")
        page.wait(lambda: all(e.text.startswith("Attribution") for e in page.all(".about")))
        page.settle()
        page.screenshot(asked.out / "serve-compare-dark.webp")

        page = Page(driver, server.address, width=390, height=844, scale=1.5)
        page.upload(asked.other_image.resolve())
        page.slide("layer", 5)
        page.point(0.45, 0.3, click=True)
        page.screenshot(asked.out / "serve-phone.webp")


if __name__ == "__main__":
    main()
