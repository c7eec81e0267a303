"""A real browser for tests of pages: Debian's chromium, without a window and without the network."""

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
    """Why there is no browser; empty: there is one."""
    if not find_spec("selenium"):
        return "selenium is not installed: pip install 'vitkit[dev]'"
    for program in ("chromium", "chromedriver"):
        if not shutil.which(program):
            return f"no {program} here: apt-get install chromium chromium-driver"
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


def look(
    driver: Any, address: str, width: int = 1280, theme: str = "light", height: int = 900, scale: float = 1
) -> None:
    """Open a page on a screen of this width, in light or dark; a narrow one is a phone's and is touched."""
    phone = width < 500
    screen = dict(width=width, height=height, deviceScaleFactor=scale, mobile=phone)
    colours = dict(name="prefers-color-scheme", value=theme)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", dict(enabled=phone))
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dict(features=[colours]))
    driver.get(address)
