"""The data set of a run: what is in it, what was left out, and what training makes of it."""

import numpy as np

from vitkit.data.dataset import Dataset
from vitkit.data.inspect import ImageStats, probe_sample
from vitkit.errors import VitkitError
from vitkit.report.first_batch import FirstBatch, first_batch
from vitkit.report.html import count, details, facts, heading, section, table, text
from vitkit.report.images import tile, tiles
from vitkit.report.run_assets import Subject

SHOWN = 32  # images of the batch
LOOKS = 64  # images whose size is looked at


def data_card(subject: Subject) -> str:
    if subject.data is None:
        return section("The data", text(f"The data could not be opened again: {subject.trouble}"))
    data = subject.data
    return section(
        "The data",
        facts(_facts(subject, data)),
        _counts(data),
        _left_out(subject),
        augmented_batch(subject, data),
    )


def augmented_batch(subject: Subject, data: Dataset) -> str:
    try:
        found = first_batch(
            subject.run.recipe, data.splits["train"], len(data.class_names), subject.preprocess, subject.patch
        )
    except VitkitError as error:
        return heading("An augmented batch") + text(f"It could not be made again: {error}")
    shown = min(SHOWN, len(found.pixels))
    first = "All" if shown == len(found.pixels) else f"The first {shown} of the"
    names = data.splits["train"].images
    items = [
        tile(
            found.pixels[i], _mixture(found, data, i), f"{_mixture(found, data, i)}: {names.name(int(found.index[i]))}"
        )
        for i in range(shown)
    ]
    return (
        heading("An augmented batch")
        + text(f"{first} {len(found.pixels)} images of step 0, as the model saw them: cropped, changed and mixed. "
               "The same seed draws the same again.")
        + tiles(items)
    )  # fmt: skip


def _mixture(found: FirstBatch, data: Dataset, index: int) -> str:
    """Such as "3", or "3 (70%), 8 (30%)"."""
    share = found.shares[index]
    order = [k for k in np.argsort(-share, kind="stable")[:2] if share[k] >= 0.005]
    if len(order) == 1:
        return data.class_names[order[0]]
    return ", ".join(f"{data.class_names[k]} ({share[k]:.0%})" for k in order)


def _facts(subject: Subject, data: Dataset) -> list[tuple[str, str]]:
    looks = probe_sample(data.splits["train"], LOOKS)
    images = {name: f"{len(split):,}" for name, split in data.splits.items()}
    p = subject.preprocess
    return [
        ("name", data.name),
        ("images", ", ".join(f"{n} {name}" for name, n in images.items())),
        ("classes", f"{len(data.class_names):,}"),
        ("sizes", f"{_sizes(looks)} (of {len(looks)} training images looked at)"),
        ("kinds", ", ".join(sorted({f"{look.format} {look.mode}" for look in looks}))),
        (
            "seen as",
            f"{p.size[0]}×{p.size[1]} pixels, {p.channels} channel{'s' * (p.channels > 1)}, {p.fit}, {p.interpolation}",
        ),
        *([("notes", "; ".join(data.notes))] if data.notes else []),
    ]


def _sizes(looks: list[ImageStats]) -> str:
    sides = sorted({(look.width, look.height) for look in looks})
    if len(sides) == 1:
        return "all {}×{} pixels".format(*sides[0])
    width, height = (sorted(getattr(look, side) for look in looks) for side in ("width", "height"))
    middle = len(looks) // 2
    return f"{width[0]} to {width[-1]} wide, {height[0]} to {height[-1]} high, median {width[middle]}×{height[middle]}"


def _counts(data: Dataset) -> str:
    tallies = {name: np.bincount(s.labels, minlength=len(data.class_names)) for name, s in data.splits.items()}
    most = {name: int(tally.max()) for name, tally in tallies.items()}
    rows = [
        [label, *(count(int(tally[k]), most[name]) for name, tally in tallies.items())]
        for k, label in enumerate(data.class_names)
    ]
    train = tallies["train"][tallies["train"] > 0]
    balance = f"The largest class has {train.max() / train.min():.3g} × as many training images as the smallest."
    found = table(["class", *tallies], rows, "Images per class")
    return text(balance) + (details("Images per class", found) if len(rows) > 20 else found)


def _left_out(subject: Subject) -> str:
    if not subject.left_out:
        return text("Every image could be read; none was left out.")
    rows = [list(line) for line in subject.left_out]
    found = table(["split", "image", "what is wrong"], rows, "Images left out")
    return text(f"{len(rows):,} images cannot be read and were left out.") + details("Which ones, and why", found)
