"""Headless Chromium for the tests of pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--hide-scrollbars",
)  # fmt: skip


def missing() -> str:
    """Return why Chromium cannot be used; empty if it can."""
    if not find_spec("selenium"):
        return "selenium is not installed: pip install 'vitkit[dev]'"
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"{program} is not installed: apt-get install chromium chromium-driver"
    return ""


@contextmanager
def chromium() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


def open_page(
    driver: Any, address: str, width: int = 1280, theme: str = "light", height: int = 900, scale: float = 1
) -> None:
    """Open a page at this width and theme; below 500 pixels the screen is that of a phone with touch."""
    phone = width < 500
    screen = dict(width=width, height=height, deviceScaleFactor=scale, mobile=phone)
    colours = dict(name="prefers-color-scheme", value=theme)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", dict(enabled=phone))
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(features=[colours]))
    driver.get(address)
