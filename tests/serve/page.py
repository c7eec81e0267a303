"""Drives the page of the server in a browser."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser import open_page


class Page:
    """Open in a browser; `how` goes to `look`."""

    def __init__(self, driver: Any, address: str, **how: Any) -> None:
        self.driver = driver
        open_page(driver, address, **how)
        self.wait(lambda: self.run("return document.body.dataset.ready"))

    def wait(self, condition: Callable[[], Any], seconds: float = 90) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: condition())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements("css selector", selector)

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def upload(self, path: Path) -> None:
        before = self.run("return Number(document.body.dataset.results ?? 0)")
        self.find("#file").send_keys(str(path))
        self.wait(lambda: self.run("return Number(document.body.dataset.results ?? 0)") > before)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is loading."""
        self.wait(
            lambda: self.run("return !document.querySelector('.busy') && (result.hidden === false || !error.hidden)")
        )

    def point(self, right: float, down: float, click: bool = False) -> None:
        """Move to a position in the image, in fractions of its sides."""
        from selenium.webdriver.common.action_chains import ActionChains

        canvas = self.find(".stage canvas")
        size = canvas.size
        chain = ActionChains(self.driver, duration=10)
        chain.move_to_element_with_offset(
            canvas, round((right - 0.5) * size["width"]), round((down - 0.5) * size["height"])
        )
        (chain.click() if click else chain).perform()

    def slide(self, name: str, value: int) -> None:
        self.run(
            "const slider = document.getElementById(arguments[0]); slider.value = arguments[1];"
            "slider.dispatchEvent(new Event('input'))",
            name,
            value,
        )

    def pixels(self, selector: str = ".stage canvas") -> str:
        return self.run("return document.querySelector(arguments[0]).toDataURL()", selector)

    def screenshot(self, path: Path) -> None:
        height, width = self.run("return [document.documentElement.scrollHeight, innerWidth]")
        clip = dict(x=0, y=0, width=width, height=height, scale=1)
        asked = dict(format=path.suffix[1:], quality=88, captureBeyondViewport=True, clip=clip)
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", asked)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Return the messages of the console, except those about expected error responses."""
        lines = [entry["message"] for entry in self.driver.get_log("browser")]
        return [line for line in lines if "Failed to load resource" not in line or " 4" not in line]
