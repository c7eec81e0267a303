"""Shared by the chapters: show a figure, print library source, and run a small training loop.

VITKIT_LEARN_SHORT=1   every chapter in seconds: fewer steps, smaller data
VITKIT_LEARN_OUT       where figures go; build/learn by default
VITKIT_SHARED          where large files are: DeiT-Tiny's weights, the grocery photographs
VITKIT_DATA            where cifar10.npz is
"""

import inspect
import os
import re
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

import vitkit

ROOT = Path(vitkit.__file__).resolve().parents[2]
SHORT = os.environ.get("VITKIT_LEARN_SHORT") == "1"

# Small models are no faster on several threads, and one thread adds in one order: the numbers repeat.
torch.set_num_threads(1)

# Okabe & Ito's colours differ for every kind of colour vision; the type stays legible on a phone.
BLUE, ORANGE, GREEN, PINK, SKY, RED, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#777777",
)  # fmt: skip
matplotlib.rcParams.update({
    "figure.figsize": (6.0, 3.6), "figure.dpi": 110, "figure.constrained_layout.use": True,
    "font.size": 11, "axes.titlesize": 11, "axes.titlelocation": "left", "axes.labelsize": 11, "legend.fontsize": 10,
    "legend.frameon": False, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 2,
    "axes.prop_cycle": matplotlib.cycler(color=[BLUE, ORANGE, GREEN, PINK, SKY, RED]),
    "image.cmap": "cividis", "image.interpolation": "nearest", "svg.hashsalt": "vitkit",
})  # fmt: skip

watchers: list[Callable[[str, Any], None]] = []  # build.py listens here for ("figure", …) and ("source", …)


def out_folder() -> Path:
    return Path(os.environ.get("VITKIT_LEARN_OUT", ROOT / "build" / "learn"))


def figure(fig: Figure, name: str, says: str) -> None:
    """Save as figures/NAME and show it in a notebook. `says` is what the figure shows, for those who cannot see it.

    Drawings become SVG; what holds a photograph becomes PNG, which is smaller then.
    """
    pictures = [axes for axes in fig.axes if axes.images]
    for axes in pictures:
        axes.spines[:].set(visible=True, color="#CCCCCC", linewidth=0.6)
    pixels = any(len(image.get_array()) > 64 for axes in pictures for image in axes.images)
    path = out_folder() / "figures" / f"{name}.{'png' if pixels else 'svg'}"
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.savefig(path, facecolor="white", dpi=160, metadata={} if pixels else {"Date": None})
    for watcher in watchers:
        watcher("figure", (path, says))
    notebook = sys.modules.get("IPython")
    if notebook and notebook.get_ipython() and not watchers:
        notebook.display.display(fig)
    plt.close(fig)  # else a notebook would show it a second time


def source(*things: Any) -> None:
    """Print the source of functions, methods or classes: the code that runs, not a copy of it."""
    for thing in things:
        target = inspect.unwrap(thing) if callable(thing) and not inspect.isclass(thing) else thing
        path = Path(inspect.getsourcefile(target) or "")
        place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        code = textwrap.dedent(inspect.getsource(target)).rstrip()
        text = f"# {place}, line {inspect.getsourcelines(target)[1]}\n{code}\n"
        for watcher in watchers:
            watcher("source", text)
        if not watchers:
            print(text)


def setting(full: Any, short: Any) -> Any:
    """The value for a reader, or the one for a quick check that everything runs."""
    return short if SHORT else full


def claim(text: str, holds: bool) -> None:
    """Say what a training run showed, and stop if it did not. Short settings are too short to show anything."""
    if SHORT:
        print(f"not checked with short settings: {text}")
        return
    if not holds:
        raise AssertionError(f"does not hold: {text}")
    print(f"checked: {text}")


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns of text left, of numbers right."""
    cells = [list(head)] + [[c if isinstance(c, str) else f"{c:,}" for c in row] for row in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    right = [all(re.match(r"^[-+]?[\d.,]|^$", row[i]) for row in cells[1:]) for i in range(len(head))]
    for n, row in enumerate(cells):
        print("  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip())
        if n == 0:
            print("  ".join("─" * w for w in widths))


def shared(name: str) -> Path | None:
    """A large file that does not come with the repository, if it is there."""
    folder = Path(os.environ.get("VITKIT_SHARED", ROOT.parent / "shared" / "data"))
    return folder / name if (folder / name).is_file() else None


def photograph(name: str = "chelsea", size: int = 224) -> Tensor:
    """(3, size, size) in 0…1: a photograph that comes with scikit-image, through vitkit's own preprocessing."""
    from skimage import data

    from vitkit.data.preprocess import Preprocess

    return Preprocess(size=(size, size), crop_fraction=1.0)(np.asarray(getattr(data, name)())).float() / 255


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(train images, labels, test images, labels): 8×8 handwritten digits, (N, 1, 8, 8), normalised."""
    from vitkit.data.open import open_data

    parts = open_data("digits", val_fraction=0).splits
    found: list[Tensor] = []
    for part in (parts["train"], parts["test"]):
        pixels = torch.from_numpy(np.stack([part.images[i] for i in range(len(part))]))
        found += [(pixels.float().reshape(-1, 1, 8, 8) / 255 - 0.3) / 0.37, torch.from_numpy(part.labels)]
    return found[0], found[1], found[2], found[3]


def fit(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    steps: int,
    lr: float = 2e-3,
    batch: int = 32,
    warmup: float = 0.1,
    seed: int = 0,
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> tuple[list[float], float]:
    """A training loop and nothing else: AdamW, a short rise and a long fall of the rate.

    Returns the losses, and the seconds of processor time, which other programs do not change.
    """
    generator, began = torch.Generator().manual_seed(seed), time.process_time()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    losses = []
    model.train()
    for step in range(steps):
        progress = (step + 0.5) / steps
        rise = progress / warmup if progress < warmup else 1.0
        for group in optimizer.param_groups:
            group["lr"] = lr * min(rise, 0.5 * (1 + np.cos(np.pi * progress)))
        chosen = torch.randint(len(images), (batch,), generator=generator)
        value = loss(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    model.eval()
    return losses, time.process_time() - began


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    return float((torch.cat([model(part) for part in images.split(256)]).argmax(dim=1) == labels).float().mean())


def smooth(values: Sequence[float], over: int) -> np.ndarray:
    """A running mean, for curves of noisy losses."""
    return np.convolve(values, np.ones(over) / over, mode="valid")
