"""A real browser for tests of pages: Debian's chromium, without a window."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars",
)  # fmt: skip


def missing() -> str:
    """Why there is no browser; empty: there is one."""
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"no {program} here: apt-get install chromium chromium-driver"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


def look(driver: Any, address: str, width: int = 1280, theme: str = "light") -> None:
    """Open a page on a screen of this width, in light or dark."""
    colours = [{"name": "prefers-color-scheme", "value": theme}]
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": colours})
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.get(address)
