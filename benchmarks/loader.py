"""Does the loader keep up? Its images/s beside plain Pillow on the same files, and beside what a training step takes.

    python benchmarks/loader.py --groceries ../shared/data/grocery.parquet --cifar10 FOLDER_OF_CIFAR10_NPZ [--json]

The photographs are unpacked into a scratch folder: as they are (256 pixels), and enlarged to 1024 as a camera would
give them. `pillow` opens, converts and resizes each to 224 pixels, one by one; the loader also draws a random crop and
a flip, and stacks batches. CIFAR-10 is in memory: there `pillow` pads, crops and flips array by array. The step is
forward, backward and AdamW in float32. Everything takes turns, round by round, so that a busy machine slows all alike.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from PIL import Image, ImageOps

from vitkit.data.augment import Augment
from vitkit.data.feed import Feed, FromFiles, InMemory, load
from vitkit.data.loader import Plan
from vitkit.data.preprocess import Preprocess
from vitkit.data.source import Split, open_data
from vitkit.model import create_model

SIZE = 224
BATCH = 16  # photographs in a step
SMALL_BATCH = 256  # CIFAR-10 images in a step
WORKERS = (0, 1, 2)

Round = Callable[[], float]  # → images/s


def unpack(parquet: Path, folder: Path, count: int, side: int | None) -> Path:
    """The first `count` photographs in class folders, as they are or enlarged."""
    import pyarrow.parquet as pq

    for i, row in enumerate(pq.read_table(parquet, columns=["image", "label"]).slice(0, count).to_pylist()):
        content = row["image"]["bytes"] if isinstance(row["image"], dict) else row["image"]
        path = folder / str(row["label"]) / f"{i:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if side:
            image = Image.open(path).convert("RGB")
            scale = side / min(image.size)
            size = (round(image.width * scale), round(image.height * scale))
            image.resize(size, Image.Resampling.BICUBIC).save(path, quality=90)
    return folder


def pillow_on_files(split: Split, images: int) -> Round:
    """One by one, in a shuffled order."""
    paths = [split.images.name(i) for i in np.random.default_rng(0).permutation(len(split))]

    def run() -> float:
        started = time.perf_counter()
        for i in range(images):
            image = Image.open(paths[i % len(paths)]).convert("RGB")
            np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BICUBIC))
        return images / (time.perf_counter() - started)

    return run


def pillow_on_arrays(split: Split, images: int) -> Round:
    """Pad, crop at random, flip half of them."""
    chance = np.random.default_rng(0)

    def run() -> float:
        started = time.perf_counter()
        for index in chance.integers(0, len(split), images):
            padded = ImageOps.expand(Image.fromarray(split.images[int(index)]), 4)
            left, top = chance.integers(0, 9, 2).tolist()
            cut = padded.crop((left, top, left + 32, top + 32))
            np.asarray(cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if chance.random() < 0.5 else cut)
        return images / (time.perf_counter() - started)

    return run


def loader(feed: Feed, workers: int, size: int, images: int) -> Round:
    stream: Iterator[Any] = feed.stream(0, lambda step: (size, size), workers)
    if workers:
        next(stream)  # processes start now, while no thread is at work: a fork would freeze what it holds
    ahead = 2 * workers or feed.store.threads  # what was made while others had their turn is not counted

    def run() -> float:
        for _ in range(ahead + 1):
            next(stream)
        steps = max(images // feed.plan.batch, 1)
        started = time.perf_counter()
        for _ in range(steps):
            next(stream)
        return steps * feed.plan.batch / (time.perf_counter() - started)

    return run


def step(name: str, batch: int) -> Round:
    model = create_model(name, seed=0).train()
    height, width = model.config.image_size
    images = torch.randn(batch, 3, height, width)
    adamw = torch.optim.AdamW(model.parameters(), fused=True)

    def run() -> float:
        started = time.perf_counter()
        model(images).square().mean().backward()
        adamw.step()
        adamw.zero_grad()
        return batch / (time.perf_counter() - started)

    return run


def measures(groceries: Path, cifar10: Path | None, scratch: Path, images: int) -> dict[str, dict[str, Round]]:
    found: dict[str, dict[str, Round]] = {}
    steps = {f"step {name}": step(name, BATCH) for name in ("vit_tiny_patch16_224", "vit_small_patch16_224")}
    for title, side, count in (("photographs, 256 px", None, 1000), ("photographs, 1024 px", 1024, 200)):
        folder = unpack(groceries, scratch / title, count, side)
        split = open_data(folder, val_fraction=0).splits["train"]
        feed = Feed(
            FromFiles(split, Preprocess(size=SIZE), Augment(crop="resized")), split.labels, Plan(len(split), BATCH)
        )
        found[title] = {"pillow": pillow_on_files(split, images // 2 if side else images)}
        found[title] |= {
            f"loader, {w} workers": loader(feed, w, SIZE, images // 2 if side else images) for w in WORKERS
        }
        found[title] |= steps
    if cifar10:
        split = open_data("cifar10", data_dir=cifar10).splits["train"]
        preprocess = Preprocess(size=32, crop_fraction=1.0)
        store = InMemory(load(split, preprocess, 0.0)[0], Augment(crop="pad"))
        feed = Feed(store, split.labels, Plan(len(split), SMALL_BATCH))
        found["CIFAR-10, in memory"] = {
            "pillow": pillow_on_arrays(split, 16 * images),
            **{f"loader, {w} workers": loader(feed, w, 32, 16 * images) for w in WORKERS},
            "step vit_nano_patch4_32": step("vit_nano_patch4_32", SMALL_BATCH),
        }
    return found


def take_turns(found: dict[str, dict[str, Round]], rounds: int) -> dict[str, dict[str, list[float]]]:
    paces: dict[str, dict[str, list[float]]] = {title: {name: [] for name in each} for title, each in found.items()}
    for turn in range(rounds + 1):  # the first one warms up
        for title, each in found.items():
            for name, run in each.items():
                pace = run()
                if turn:
                    paces[title][name].append(pace)
    return paces


def where() -> str:
    cpu = next((line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine())
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, Pillow {PIL.__version__}"
    return f"{date.today()} · {cpu}, {os.cpu_count()} cores, {torch.get_num_threads()} torch threads · {versions}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groceries", type=Path, required=True, help="grocery.parquet")
    parser.add_argument("--cifar10", type=Path, help="the folder that holds cifar10.npz; left out where not given")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=256, help="photographs per round and measure")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vitkit-loader-") as scratch:
        paces = take_turns(measures(options.groceries, options.cifar10, Path(scratch), options.images), options.rounds)
    rows = [
        {"data": title, "what": name, "images_per_s": round(statistics.median(values), 1), "rounds": values}
        for title, each in paces.items()
        for name, values in each.items()
    ]
    if options.json:
        json.dump({"where": where(), "rows": rows}, sys.stdout, indent=2)
        print()
        return
    print(f"# python benchmarks/loader.py --rounds {options.rounds} --images {options.images} · {where()}")
    for title, each in paces.items():
        pillow = statistics.median(each["pillow"])
        print(f"\n{title:28} images/s  to pillow  (median of {options.rounds}; lowest to highest)")
        for name, values in each.items():
            middle = statistics.median(values)
            print(f"  {name:26} {middle:8,.1f}  {middle / pillow:9.2f}  ({min(values):,.1f} to {max(values):,.1f})")


if __name__ == "__main__":
    main()
