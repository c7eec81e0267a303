"""`plan(job, …)`: all that is said about one run, and the settings that start it."""

from dataclasses import dataclass
from typing import Any

from vitkit.plan.checkpoint import daly, state_bytes, young
from vitkit.plan.feasibility import USABLE, Fit, smaller_image, ways
from vitkit.plan.job import Job
from vitkit.plan.memory import memory
from vitkit.plan.simulate import Cluster
from vitkit.plan.step_time import StepTime, step_time, volume


@dataclass(frozen=True)
class Answer:
    job: Job  # as it would run: with the micro-batch, and what else had to change, that make it fit
    fits: bool
    ways: list[Fit]  # as asked for first
    limit: float  # bytes
    step: StepTime | None  # None: no rates are known
    images: int
    epochs: float
    smaller_image: int | None  # where nothing fits: the side of images of which one would
    cluster: Cluster | None

    @property
    def steps(self) -> int:
        return max(1, round(self.epochs * self.images / self.job.batch))

    @property
    def seconds(self) -> float | None:
        return None if self.step is None else self.steps * self.step.seconds

    def settings(self) -> list[str]:
        """For `vitkit train --set`."""
        j = self.job
        chosen = [f"batch={j.batch}", f"machine.precision={j.precision}", f"optimizer.name={j.optimizer}"]
        if j.accumulates:
            chosen.append(f"machine.micro_batch={j.at_a_time}")
        if j.checkpoint:
            chosen.append("machine.checkpoint_blocks=true")
        if j.shard == "full":
            chosen.append("parallel.shard=full")
        if not j.ema:
            chosen.append("optimizer.ema=0")
        return chosen

    def to_dict(self) -> dict[str, Any]:
        m = memory(self.job)
        parts = {name: getattr(m, name) for name in PARTS}
        found: dict[str, Any] = {
            "fits": self.fits,
            "memory": {**parts, "phases": m.phases, "highest": m.highest, "peak": m.peak, "limit": int(self.limit)},
            "batch": self.job.batch,
            "ranks": self.job.ranks,
            "cores": self.job.cores,
            "micro_batch": self.job.at_a_time,
            "checkpoint_activations": self.job.checkpoint,
            "shard": self.job.shard,
            "ways": [{"what": w.what, "micro_batch": w.micro_batch, "peak": w.memory.peak} for w in self.ways],
            "settings": self.settings(),
            "sent_bytes_per_step": {s: volume(self.job.replace(shard=s)).total for s in ("none", "full")},
            "checkpoint_bytes": state_bytes(self.job),
            "images": self.images,
            "epochs": self.epochs,
            "steps": self.steps,
            "smaller_image": self.smaller_image,
        }
        if self.step and self.cluster:
            failures = self.cluster.failures(self.job)
            found |= {
                "step_seconds": self.step.seconds,
                "communication_seconds": self.step.communication,
                "waiting_seconds": self.step.waiting,
                "images_per_s": self.job.batch / self.step.seconds,
                "seconds": self.seconds,
                "checkpoint_seconds": failures.write,
                "mtbf_seconds": failures.mtbf,
                "checkpoint_interval": {"young": young(failures), "daly": daly(failures)},
            }
        return found


PARTS = {
    "parameters": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "ema": "moving average",
    "activations": "activations",
    "buckets": "gradients as DDP sends them",
    "base": "the process itself",
}


def plan(job: Job, limit: float, images: int, epochs: float, minutes: float, cluster: Cluster | None) -> Answer:
    """The job as asked where it fits, else with what has to change: fewer images at a time, activations that are
    computed twice, sharding; of several ways the fastest."""
    found = list(ways(job, limit))
    asked = found[0]
    chosen = asked if asked.micro_batch >= job.share else _best([way for way in found if way.fits], cluster) or asked
    step = step_time(chosen.runs, cluster.rates, cluster.network) if cluster else None
    if minutes and step:
        epochs = 60 * minutes / step.seconds * job.batch / images
    smaller = None if chosen.fits else smaller_image(job, limit)
    limit *= USABLE[job.device]
    return Answer(chosen.runs, chosen.fits, found, limit, step, images, epochs, smaller, cluster)


def _best(fitting: list[Fit], cluster: Cluster | None) -> Fit | None:
    """The fastest that changes nothing about the result; the first, where no rates are known."""
    same = [way for way in fitting if way.job.ema == fitting[0].job.ema]
    if not same or cluster is None:
        return same[0] if same else None
    return min(same, key=lambda way: step_time(way.runs, cluster.rates, cluster.network).seconds)
