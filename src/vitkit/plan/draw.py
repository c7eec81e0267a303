"""The plan as a picture: throughput, lasting share, checkpoint interval and memory, over the number of ranks."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitkit.plan.checkpoint import daly, goodput, young
from vitkit.plan.job import Job
from vitkit.plan.memory import GIB, memory
from vitkit.plan.simulate import Cluster, Point, elapsed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREY, GREEN = "#2166ac", "#d6604d", "#888888", "#1b7837"


def draw(job: Job, cluster: Cluster, points: Sequence[Point], path: str | Path, title: str) -> None:
    from matplotlib.figure import Figure

    running = [p for p in points if p.micro_batch]
    figure = Figure(figsize=(11, 7.6), layout="constrained")
    figure.suptitle(title, x=0.012, ha="left", fontweight="bold")
    (speed, share), (interval, room) = figure.subplots(2, 2)
    _speed(speed, running)
    _share(share, running)
    _interval(interval, job.replace(ranks=running[-1].ranks, micro_batch=0), cluster)
    _memory(room, job, cluster, points)
    for axes in (speed, share, interval, room):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=150)


def _speed(axes: "Axes", points: Sequence[Point]) -> None:
    ranks = [p.ranks for p in points]
    first = points[0]
    axes.plot(ranks, [first.images_per_s * n / first.ranks for n in ranks], color=GREY, linestyle=":", label="ideal")
    axes.plot(ranks, [p.images_per_s for p in points], color=BLUE, marker="o", markersize=4, label="while it runs")
    axes.plot(ranks, [p.lasting_images_per_s for p in points], color=ORANGE, marker="s", markersize=4,
              linestyle="--", label="that last, failures and checkpoints paid")  # fmt: skip
    axes.set(yscale="log", ylabel="images per second")
    axes.set_title("Throughput of one batch on more ranks", loc="left", fontsize=10)
    _ranks(axes, ranks)
    axes.legend(frameon=False, fontsize=9)


def _share(axes: "Axes", points: Sequence[Point]) -> None:
    ranks, first = [p.ranks for p in points], points[0]
    scaling = [p.images_per_s / p.ranks / (first.images_per_s / first.ranks) for p in points]
    axes.plot(ranks, scaling, color=BLUE, marker="o", markersize=4, label="of ideal speed, while it runs")
    axes.plot(ranks, [p.goodput for p in points], color=ORANGE, linestyle="--", label="of the time lasts, by formula")
    axes.plot(ranks, [p.simulated_goodput for p in points], color=ORANGE, marker="s", markersize=4, linestyle="",
              label="of the time lasts, simulated")  # fmt: skip
    axes.set(ylim=(0, 1.05))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.set_title("What is lost: to communication, and to failures", loc="left", fontsize=10)
    _ranks(axes, ranks)
    axes.legend(frameon=False, fontsize=9, loc="lower left")


def _interval(axes: "Axes", job: Job, cluster: Cluster) -> None:
    failures = cluster.failures(job)
    best = daly(failures)
    intervals = np.geomspace(best / 15, best * 15, 60)
    axes.plot(intervals / 60, [1 - goodput(t, failures) for t in intervals], color=ORANGE, label="by formula")
    draws, work = np.random.default_rng(0), 1000 * failures.mtbf
    some = intervals[::6]
    played = [1 - work / elapsed(work, t, failures, draws) for t in some]
    axes.plot(some / 60, played, color=ORANGE, marker="s", markersize=4, linestyle="", label="simulated")
    highest = 1 - goodput(intervals[-1], failures)
    for value, style, name in ((young(failures), ":", "Young"), (best, "-", "Daly")):
        label = f"{name}: {_time(value)}"
        axes.vlines(value / 60, 0, highest, color=GREEN, linestyle=style, linewidth=1.2, label=label)
    axes.set(xscale="log", xlabel="minutes between checkpoints", ylim=(0, 1.35 * highest))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    what = f"{job.ranks:,} ranks, a failure every {_time(failures.mtbf)}, {failures.write:,.1f} s to write"
    axes.set_title(f"Time lost: {what}", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper center")


def _memory(axes: "Axes", job: Job, cluster: Cluster, points: Sequence[Point]) -> None:
    ranks = [p.ranks for p in points]
    ways = {"full": (BLUE, "o", "cut over all ranks (FSDP)"), "none": (GREY, "^", "whole on every rank (DDP)")}
    for shard, (color, marker, label) in ways.items():
        held = [memory(job.replace(ranks=n, shard=shard, micro_batch=1)).peak / GIB for n in ranks]
        axes.plot(ranks, held, color=color, marker=marker, markersize=4, label=label)
    axes.axhline(cluster.memory / GIB, color=ORANGE, linestyle="--", linewidth=1.2, label="what there is")
    axes.set_yscale("log", base=2)
    axes.set_ylabel("GiB")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_title("Memory of one rank, with one image at a time", loc="left", fontsize=10)
    _ranks(axes, ranks)
    axes.legend(frameon=False, fontsize=9)


def _ranks(axes: "Axes", ranks: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlabel("ranks")
    shown = [n for n in ranks if math.log2(n) % 2 == 0] if len(ranks) > 7 else list(ranks)
    axes.set_xticks(shown, labels=[f"{n:,}" for n in shown], minor=False)
    axes.minorticks_off()


def _time(seconds: float) -> str:
    for name, size in (("days", 86400), ("h", 3600)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}"
    return f"{seconds / 60:.1f} min"
