"""Record the animation of README.md: `python docs/record_serve.py MODEL IMAGE OTHER_IMAGE` (needs chromium).

Starts `vitkit serve MODEL`, uses its page in a headless browser as a visitor would, and joins the frames to an animated
WebP. The mouse pointer is drawn by the script, because a headless browser has none. The animation in the repository
shows DeiT-Tiny (`vitkit convert deit_tiny_patch16_224_in1k.safetensors deit-tiny --to vitkit --class-names
imagenet1k_classes.json`) and two photographs of scikit-image, `data.cat()` and `data.coffee()`.
"""

import argparse
import base64
import io
import itertools
import sys
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browser import chromium  # noqa: E402  # the tests' browser
from tests.serve.client import running  # noqa: E402
from tests.serve.page import Page  # noqa: E402

WIDTH, HEIGHT, SHOWN_WIDTH = 1000, 900, 880
POINTER = """
let arrow = document.getElementById('recorded-pointer');
if (!arrow) {
  arrow = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  arrow.id = 'recorded-pointer';
  arrow.setAttribute('viewBox', '0 0 16 24');
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', 'M1 1 L1 18 L5.5 14 L8.5 21.5 L11.5 20.2 L8.5 13 L14.5 13 Z');
  path.setAttribute('fill', 'black'); path.setAttribute('stroke', 'white'); path.setAttribute('stroke-width', '1.4');
  arrow.append(path);
  Object.assign(arrow.style, {position: 'fixed', width: '20px', height: '30px', zIndex: 99, pointerEvents: 'none'});
  document.body.append(arrow);
}
const box = document.querySelector(arguments[0]).getBoundingClientRect();
arrow.style.left = `${box.left + arguments[1] * box.width}px`;
arrow.style.top = `${box.top + arguments[2] * box.height}px`;
"""


class Recorder:
    """Uses the page and keeps a frame after every action."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []  # milliseconds

    def keep(self, milliseconds: int) -> None:
        clip = dict(x=0, y=0, width=WIDTH, height=HEIGHT, scale=1)
        shot = self.page.driver.execute_cdp_cmd("Page.captureScreenshot", dict(format="png", clip=clip))
        frame = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
        size = (SHOWN_WIDTH, round(HEIGHT * SHOWN_WIDTH / WIDTH))
        self.frames.append(frame.resize(size, Image.Resampling.LANCZOS))
        self.durations.append(milliseconds)

    def pointer(self, selector: str, right: float = 0.5, down: float = 0.5) -> None:
        self.page.run(POINTER, selector, right, down)

    def upload(self, path: Path) -> None:
        self.pointer("#drop", 0.7, 0.6)
        self.keep(700)
        self.page.upload(path.resolve())
        self.keep(900)

    def sweep(self, places: list[tuple[float, float]], steps: int = 4) -> None:
        """Move the pointer over the image along these places, given as fractions of its sides."""
        for (x0, y0), (x1, y1) in itertools.pairwise(places):
            for step in range(1, steps + 1):
                x, y = x0 + (x1 - x0) * step / steps, y0 + (y1 - y0) * step / steps
                self.page.point(x, y)
                self.pointer(".stage canvas", x, y)
                self.keep(110)

    def layers(self, numbers: range) -> None:
        for number in numbers:
            self.page.slide("layer", number)
            self.pointer("#layer", (number - 1) / 11, 0.5)
            self.keep(170)

    def method(self, name: str) -> None:
        self.page.run(f"document.querySelector('[value={name}]').click()")
        self.page.wait(lambda: all(e.text.lower().startswith(name) for e in self.page.all(".about")))
        self.page.settle()
        self.pointer(f"#methods label:has([value={name}])", 0.6, 0.6)
        self.keep(1500)

    def save(self, path: Path, quality: int) -> None:
        first, *others = self.frames
        first.save(
            path, save_all=True, append_images=others, duration=self.durations, loop=0, quality=quality, method=6
        )


def record(driver: Any, address: str, image: Path, other: Path) -> Recorder:
    recorder = Recorder(Page(driver, address, width=WIDTH, height=HEIGHT))
    recorder.page.upload(image.resolve())  # the first frame, which is what a still preview shows, has a result
    recorder.keep(1200)
    recorder.layers(range(12, 5, -1))
    recorder.sweep([(0.9, 0.95), (0.62, 0.75), (0.27, 0.32), (0.5, 0.3), (0.72, 0.2), (0.5, 0.62)])
    recorder.keep(900)
    recorder.method("gradient")
    recorder.page.run("scrollTo(0, 0)")
    recorder.upload(other)
    recorder.method("attribution")
    return recorder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "image", "other_image"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "serve.webp")
    parser.add_argument("--quality", type=int, default=75, help="of the WebP, 1 to 100")
    asked = parser.parse_args()
    with running(str(asked.model)) as server, chromium() as driver:
        recorder = record(driver, server.address, asked.image, asked.other_image)
    recorder.save(asked.out, asked.quality)
    print(f"{asked.out}: {len(recorder.frames)} frames, {asked.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
