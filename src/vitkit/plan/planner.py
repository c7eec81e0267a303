"""`plan(job, …)`: the estimates for one run, and the settings that start it."""

from dataclasses import dataclass
from typing import Any

from vitkit.plan.checkpoint_size import daly_interval, state_bytes, young_interval
from vitkit.plan.feasibility import USABLE_FRACTION, Option, options, smaller_image
from vitkit.plan.job import Job
from vitkit.plan.memory import memory
from vitkit.plan.simulate import Cluster
from vitkit.plan.step_time import StepTime, communication_volume, step_time


@dataclass(frozen=True)
class RunPlan:
    job: Job  # as it would run, with the changes that make it fit
    fits: bool
    options: list[Option]  # as given first
    limit: float  # bytes
    step: StepTime | None  # None if no rates are known
    images: int
    epochs: float
    smaller_image: int | None  # the largest image height that fits, if nothing else does
    cluster: Cluster | None

    @property
    def steps(self) -> int:
        return max(1, round(self.epochs * self.images / self.job.batch_size))

    @property
    def seconds(self) -> float | None:
        return None if self.step is None else self.steps * self.step.seconds

    def settings(self) -> list[str]:
        """Return the assignments for `vitkit train --set`."""
        j = self.job
        chosen = [f"batch={j.batch_size}", f"machine.precision={j.precision}", f"optimizer.name={j.optimizer}"]
        optional = {
            f"machine.micro_batch={j.forward_batch}": j.accumulates,
            "machine.checkpoint_blocks=true": j.checkpoint,
            "parallel.shard=full": j.shard == "full",
            "optimizer.ema=0": not j.ema,
        }
        return chosen + [setting for setting, needed in optional.items() if needed]

    def to_dict(self) -> dict[str, Any]:
        m = memory(self.job)
        parts = {name: getattr(m, name) for name in PARTS}
        found: dict[str, Any] = {
            "fits": self.fits,
            "memory": {**parts, "phases": m.phases, "highest": m.peak_phase, "peak": m.peak, "limit": int(self.limit)},
            "batch": self.job.batch_size,
            "ranks": self.job.ranks,
            "cores": self.job.cores,
            "micro_batch": self.job.forward_batch,
            "checkpoint_activations": self.job.checkpoint,
            "shard": self.job.shard,
            "ways": [{"what": w.what, "micro_batch": w.micro_batch, "peak": w.memory.peak} for w in self.options],
            "settings": self.settings(),
            "sent_bytes_per_step": {s: communication_volume(self.job.replace(shard=s)).total for s in ("none", "full")},
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
                "images_per_s": self.job.batch_size / self.step.seconds,
                "seconds": self.seconds,
                "checkpoint_seconds": failures.write,
                "mtbf_seconds": failures.mtbf,
                "checkpoint_interval": {"young": young_interval(failures), "daly": daly_interval(failures)},
            }
        return found


PARTS = {
    "parameters": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "ema": "moving average",
    "activations": "activations",
    "buckets": "DDP gradient buckets",
    "base": "process and libraries",
}


def plan(job: Job, limit: float, images: int, epochs: float, minutes: float, cluster: Cluster | None) -> RunPlan:
    """Plan the job as given if it fits, else its fastest variant that does: smaller micro-batches, recomputation or
    sharding. A positive `minutes` overrides `epochs`."""
    found = list(options(job, limit))
    given = found[0]
    fitting = [option for option in found if option.fits]
    chosen = given if given.micro_batch >= job.rank_batch else _fastest(fitting, cluster) or given
    step = step_time(chosen.runnable, cluster.rates, cluster.network) if cluster else None
    if minutes and step:
        epochs = 60 * minutes / step.seconds * job.batch_size / images
    smaller = None if chosen.fits else smaller_image(job, limit)
    limit *= USABLE_FRACTION[job.device]
    return RunPlan(chosen.runnable, chosen.fits, found, limit, step, images, epochs, smaller, cluster)


def _fastest(fitting: list[Option], cluster: Cluster | None) -> Option | None:
    """Return the fastest option with the same result, or the first one if no rates are known."""
    same = [option for option in fitting if option.job.ema == fitting[0].job.ema]
    if not same or cluster is None:
        return same[0] if same else None
    return min(same, key=lambda option: step_time(option.runnable, cluster.rates, cluster.network).seconds)
