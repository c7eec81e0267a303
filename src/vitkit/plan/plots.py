"""Plots of a simulated run over the number of ranks: throughput, goodput, checkpoint interval and memory."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitkit.plan.checkpoint_size import daly_interval, goodput, young_interval
from vitkit.plan.job import Job
from vitkit.plan.memory import GIB, memory
from vitkit.plan.simulate import Cluster, ScalePoint, simulate_elapsed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREY, GREEN = "#2166ac", "#d6604d", "#888888", "#1b7837"


def plot_scaling(job: Job, cluster: Cluster, points: Sequence[ScalePoint], path: str | Path, title: str) -> None:
    from matplotlib.figure import Figure

    running = [p for p in points if p.micro_batch]
    figure = Figure(figsize=(11, 7.6), layout="constrained")
    figure.suptitle(title, x=0.012, ha="left", fontweight="bold")
    (throughput, efficiency), (interval, rank_memory) = figure.subplots(2, 2)
    _throughput(throughput, running)
    _efficiency(efficiency, running)
    _interval(interval, job.replace(ranks=running[-1].ranks, micro_batch=0), cluster)
    _memory(rank_memory, job, cluster, points)
    for axes in (throughput, efficiency, interval, rank_memory):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
    figure.savefig(path, dpi=150)


def _throughput(axes: "Axes", points: Sequence[ScalePoint]) -> None:
    ranks, first = [p.ranks for p in points], points[0]
    axes.plot(ranks, [first.images_per_s * n / first.ranks for n in ranks], color=GREY, linestyle=":", label="ideal")
    axes.plot(ranks, [p.images_per_s for p in points], color=BLUE, marker="o", markersize=4, label="while running")
    axes.plot(ranks, [p.goodput * p.images_per_s for p in points], color=ORANGE, marker="s", markersize=4,
              linestyle="--", label="including failures and checkpoints")  # fmt: skip
    axes.set(yscale="log", ylabel="images per second")
    axes.set_title("Throughput at a fixed batch size", loc="left", fontsize=10)
    _ranks(axes, ranks)
    axes.legend(frameon=False, fontsize=9)


def _efficiency(axes: "Axes", points: Sequence[ScalePoint]) -> None:
    ranks, first = [p.ranks for p in points], points[0]
    scaling = [p.images_per_s / p.ranks / (first.images_per_s / first.ranks) for p in points]
    axes.plot(ranks, scaling, color=BLUE, marker="o", markersize=4, label="scaling efficiency")
    axes.plot(ranks, [p.goodput for p in points], color=ORANGE, linestyle="--", label="goodput, formula")
    axes.plot(ranks, [p.simulated_goodput for p in points], color=ORANGE, marker="s", markersize=4, linestyle="",
              label="goodput, simulated")  # fmt: skip
    axes.set(ylim=(0, 1.05))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.set_title("Efficiency: losses to communication and to failures", loc="left", fontsize=10)
    _ranks(axes, ranks)
    axes.legend(frameon=False, fontsize=9, loc="lower left")


def _interval(axes: "Axes", job: Job, cluster: Cluster) -> None:
    failures = cluster.failures(job)
    best = daly_interval(failures)
    intervals = np.geomspace(best / 15, best * 15, 60)
    axes.plot(intervals / 60, [1 - goodput(t, failures) for t in intervals], color=ORANGE, label="formula")
    rng, work = np.random.default_rng(0), 1000 * failures.mtbf
    some = intervals[::6]
    simulated = [1 - work / simulate_elapsed(work, t, failures, rng) for t in some]
    axes.plot(some / 60, simulated, color=ORANGE, marker="s", markersize=4, linestyle="", label="simulated")
    highest = 1 - goodput(intervals[-1], failures)
    for value, style, name in ((young_interval(failures), ":", "Young"), (best, "-", "Daly")):
        label = f"{name}: {_time(value)}"
        axes.vlines(value / 60, 0, highest, color=GREEN, linestyle=style, linewidth=1.2, label=label)
    axes.set(xscale="log", xlabel="minutes between checkpoints", ylim=(0, 1.35 * highest))
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    setting = f"{job.ranks:,} ranks, MTBF {_time(failures.mtbf)}, {failures.write:,.1f} s per write"
    axes.set_title(f"Time lost: {setting}", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="upper center")


def _memory(axes: "Axes", job: Job, cluster: Cluster, points: Sequence[ScalePoint]) -> None:
    ranks = [p.ranks for p in points]
    modes = {"full": (BLUE, "o", "sharded (FSDP)"), "none": (GREY, "^", "replicated (DDP)")}
    for shard, (color, marker, label) in modes.items():
        peaks = [memory(job.replace(ranks=n, shard=shard, micro_batch=1)).peak / GIB for n in ranks]
        axes.plot(ranks, peaks, color=color, marker=marker, markersize=4, label=label)
    axes.axhline(cluster.memory / GIB, color=ORANGE, linestyle="--", linewidth=1.2, label="available")
    axes.set_yscale("log", base=2)
    axes.set_ylabel("GiB")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_title("Memory of one rank, micro-batch 1", loc="left", fontsize=10)
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
