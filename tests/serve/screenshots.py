"""The pictures of docs/guides/serve.md: python -m tests.serve.screenshots MODEL OTHER_MODEL IMAGE OTHER_IMAGE OUT."""

import argparse
from pathlib import Path

from .browser import Page
from .client import running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "other_model", "image", "other_image", "out"):
        parser.add_argument(name, type=Path)
    asked = parser.parse_args()
    with running(str(asked.model), str(asked.other_model)) as server:
        page = Page(server.address, 1280, 1000)
        page.upload(asked.image.resolve())
        page.slide("layer", 6)
        page.point(0.25, 0.32, click=True)
        page.screenshot(asked.out / "serve-desktop.webp")
        page.close()

        page = Page(server.address, 1280, 1000, dark=True)
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
        page.close()

        page = Page(server.address, 390, 844, scale=1.5)
        page.upload(asked.other_image.resolve())
        page.slide("layer", 5)
        page.point(0.45, 0.3, click=True)
        page.screenshot(asked.out / "serve-phone.webp")
        page.close()


if __name__ == "__main__":
    main()
