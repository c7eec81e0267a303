"""Take the screenshots of the report for the docs: `vitkit demo && python docs/pictures.py` (needs chromium)."""

import base64
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import chromium, open_page  # noqa: E402  # the tests' browser

RUN = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo").resolve()
OUT = ROOT / "docs" / "images"

# file, width of the screen, theme, part of the page: from the top of one element to the bottom of another
SHOTS = (
    ("attention.png", 1100, "light", "#explanations .examples", "#explanations .examples"),
    ("curves.png", 1100, "light", "#learning-curves .charts", "#learning-curves .charts"),
    ("report.png", 1100, "light", "header", "#performance .charts"),
    ("report-dark.png", 1100, "dark", "#most-confident-mistakes", "#most-confident-mistakes"),
    ("report-phone.png", 390, "dark", "header", "#learning-curves .charts"),
)

PLACE = """
const [first, last] = [...arguments].map((s) => document.querySelector(s).getBoundingClientRect());
return {x: 0, y: Math.max(first.top - 12, 0), width: innerWidth, height: last.bottom - first.top + 24, scale: 1};
"""


def shoot(driver: Any, name: str, width: int, theme: str, first: str, last: str) -> None:
    open_page(driver, (RUN / "report.html").as_uri(), width, theme)
    clip = driver.execute_script(PLACE, first, last)
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    (OUT / name).write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    with chromium() as driver:
        for shot in SHOTS:
            shoot(driver, *shot)
