"""A real Chromium, driven by selenium; never the network."""

import base64
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--disable-dev-shm-usage",
)  # fmt: skip


def lacking() -> str:
    """Why there is no browser to test with; empty where there is one."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(missing)}: apt-get install chromium chromium-driver" if missing else ""


class Page:
    def __init__(
        self, address: str, width: int = 1280, height: int = 900, dark: bool = False, scale: float = 1
    ) -> None:
        options = webdriver.ChromeOptions()
        for flag in FLAGS:
            options.add_argument(flag)
        options.binary_location = str(shutil.which("chromium"))
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(str(shutil.which("chromedriver"))))
        screen = dict(width=width, height=height, deviceScaleFactor=scale, mobile=width < 500)
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", dict(enabled=width < 500))
        colours = dict(name="prefers-color-scheme", value="dark" if dark else "light")
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(features=[colours]))
        self.driver.get(address)
        self.wait(lambda: self.run("return document.body.dataset.ready"))

    def wait(self, true: Callable[[], Any], seconds: float = 90) -> None:
        WebDriverWait(self.driver, seconds, 0.05).until(lambda _: true())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        return self.find(selector).text

    def upload(self, path: Path) -> None:
        before = self.run("return Number(document.body.dataset.answers ?? 0)")
        self.find("#file").send_keys(str(path))
        self.wait(lambda: self.run("return Number(document.body.dataset.answers ?? 0)") > before)
        self.settle()

    def settle(self) -> None:
        """Until nothing is loading any more."""
        self.wait(
            lambda: self.run("return !document.querySelector('.busy') && (result.hidden === false || !error.hidden)")
        )

    def point(self, right: float, down: float, click: bool = False) -> None:
        """At a place of the picture, in shares of its sides."""
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
        """What the console says, but for the browser's own note of an answer that was an error on purpose."""
        lines = [entry["message"] for entry in self.driver.get_log("browser")]
        return [line for line in lines if "Failed to load resource" not in line or " 4" not in line]

    def close(self) -> None:
        self.driver.quit()
