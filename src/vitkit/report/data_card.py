"""The data set of a run: splits, classes, image sizes, unreadable images, and the first training batch."""

import numpy as np

from vitkit.data.dataset import Dataset
from vitkit.data.inspect import ImageStats, probe_sample
from vitkit.errors import VitkitError
from vitkit.report.augmented_batch import FirstBatch, first_batch
from vitkit.report.html import count, details, facts, heading, section, table, text
from vitkit.report.images import tile, tiles
from vitkit.report.run_assets import RunAssets

MAX_BATCH_IMAGES = 32
SAMPLE_SIZE = 64  # training images whose size and format are read


def data_section(assets: RunAssets) -> str:
    if assets.data is None:
        return section("Data set", text(f"The data set could not be opened: {assets.data_error}"))
    data = assets.data
    return section(
        "Data set", facts(_facts(assets, data)), _class_counts(data), _unreadable(assets), _first_batch(assets, data)
    )


def _first_batch(assets: RunAssets, data: Dataset) -> str:
    title, train = heading("First training batch"), data.splits["train"]
    try:
        batch = first_batch(assets.run.recipe, train, len(data.class_names), assets.preprocess, assets.patch_size)
    except VitkitError as error:
        return title + text(f"It could not be computed: {error}")
    count = len(batch.pixels)
    shown = min(MAX_BATCH_IMAGES, count)
    which = f"All {count}" if shown == count else f"{shown} of the {count}"
    items = []
    for i in range(shown):
        labels = _labels(batch, data, i)
        items.append(tile(batch.pixels[i], labels, f"{labels}: {train.images.name(int(batch.index[i]))}"))
    about = (
        f"{which} images of step 0 as the model received them, after augmentation and mixing. The batch is recomputed "
        "from the seed and is identical to the one of the run."
    )
    return title + text(about) + tiles(items)


def _labels(batch: FirstBatch, data: Dataset, index: int) -> str:
    """Return the label, or the two largest shares of a mixed image, such as "3 (70%), 8 (30%)"."""
    share = batch.shares[index]
    order = [k for k in np.argsort(-share, kind="stable")[:2] if share[k] >= 0.005]
    if len(order) == 1:
        return data.class_names[order[0]]
    return ", ".join(f"{data.class_names[k]} ({share[k]:.0%})" for k in order)


def _facts(assets: RunAssets, data: Dataset) -> list[tuple[str, str]]:
    sample = probe_sample(data.splits["train"], SAMPLE_SIZE)
    p = assets.preprocess
    channels = f"{p.channels} channel{'s' * (p.channels > 1)}"
    return [
        ("name", data.name),
        ("images", ", ".join(f"{len(split):,} {name}" for name, split in data.splits.items())),
        ("classes", f"{len(data.class_names):,}"),
        ("image sizes", f"{_sizes(sample)} (sample of {len(sample)} training images)"),
        ("formats", ", ".join(sorted({f"{image.format} {image.mode}" for image in sample}))),
        ("model input", f"{p.size[0]}×{p.size[1]} pixels, {channels}, {p.fit}, {p.interpolation}"),
        *([("notes", "; ".join(data.notes))] if data.notes else []),
    ]


def _sizes(sample: list[ImageStats]) -> str:
    sides = sorted({(image.width, image.height) for image in sample})
    if len(sides) == 1:
        return "all {}×{} pixels".format(*sides[0])
    width, height = (sorted(getattr(image, side) for image in sample) for side in ("width", "height"))
    middle = len(sample) // 2
    median = f"{width[middle]}×{height[middle]}"
    return f"width {width[0]} to {width[-1]}, height {height[0]} to {height[-1]}, median {median}"


def _class_counts(data: Dataset) -> str:
    counts = {name: np.bincount(s.labels, minlength=len(data.class_names)) for name, s in data.splits.items()}
    rows = [
        [label, *(count(int(split[k]), int(split.max())) for split in counts.values())]
        for k, label in enumerate(data.class_names)
    ]
    train = counts["train"][counts["train"] > 0]
    balance = f"The largest class has {train.max() / train.min():.3g} × as many training images as the smallest."
    found = table(["class", *counts], rows, "Images per class")
    return text(balance) + (details("Images per class", found) if len(rows) > 20 else found)


def _unreadable(assets: RunAssets) -> str:
    if not assets.unreadable:
        return text("All images could be read.")
    rows = [[split, failure.name, failure.reason] for split, failure in assets.unreadable]
    found = table(["split", "image", "error"], rows, "Unreadable images")
    return text(f"{len(rows):,} images could not be read and were skipped.") + details("Which", found)
