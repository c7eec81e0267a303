import math
import os
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from vitkit.cli.args import flag
from vitkit.cli.model_args import is_checkpoint, open_config
from vitkit.cli.output import JsonOption, console, print_json, print_table
from vitkit.cli.output_paths import check_figure_file
from vitkit.errors import UsageError, WorkError

if TYPE_CHECKING:
    from vitkit.model import ViTConfig
    from vitkit.plan.job import Job
    from vitkit.plan.planner import RunPlan
    from vitkit.plan.simulate import Cluster, Coverage, ScalePoint

Size = Annotated[str | None, arg(metavar="SIZE")]


@dataclass(frozen=True)
class Plan:
    """Estimate memory, time and checkpoint size of a run, and suggest settings that fit."""

    model: str
    """A model name, a model folder or a run folder."""
    data: str | None = None
    """Data set that gives the number of images and classes."""
    images: int | None = None
    """Number of training images, instead of --data. (default: 1281167, as in ImageNet-1k)"""
    label: str = "label"
    """Column of the class in a CSV or parquet file."""
    data_dir: str | None = None
    """Folder of named data sets. (default: $VITKIT_DATA)"""
    gpus: int = 0
    """Number of GPUs. 0 plans for one process on a CPU."""
    gpu_memory: Size = None
    """Memory of one GPU, such as 80GB."""
    memory: Size = None
    """Memory limit on a CPU, such as 6GB. (default: the memory of this machine)"""
    epochs: float | None = None
    """Number of epochs. (default: 20)"""
    minutes: float | None = None
    """Time budget, instead of --epochs."""
    batch: int = 256
    """Images per step, over all ranks."""
    image_size: int | None = None
    """Side of square images. (default: that of the model)"""
    shard: Literal["none", "full"] = "none"
    """full shards weights, gradients and optimizer state over all GPUs (FSDP)."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """Optimizer."""
    precision: Literal["bf16", "fp32"] | None = None
    """Precision of matrix products. (default: bf16 on GPUs, fp32 on a CPU)"""
    flops: float | None = None
    """Peak of one GPU or CPU in TFLOP/s at this precision."""
    utilization: float = 0.4
    """Fraction of the peak that training reaches."""
    bandwidth: float = 25.0
    """Network bandwidth of one GPU in GB/s."""
    storage: float = 2.0
    """Write speed for checkpoints in GB/s, over all ranks."""
    gpus_per_node: int = 8
    """GPUs per node. A node fails as a unit."""
    node_mtbf: float = 6300.0
    """Mean hours between failures of one node."""
    calibrate: bool = False
    """Measure the speed of this machine with a matrix product and a short step, instead of --flops."""
    simulate: bool = False
    """Simulate the run on 1 to 4,096 ranks, with failures and checkpoints."""
    plot: Annotated[str | None, arg(metavar="FILE")] = None
    """Plot the simulation to this PNG, SVG or PDF file."""
    json: JsonOption = False

    def run(self) -> int:
        from vitkit.plan.planner import plan
        from vitkit.plan.simulate import simulate_all_coverage

        if self.plot:
            check_figure_file(self.plot, "--plot")
        config, images, limit = *self._data(), self._limit()
        job = self._job(config)
        cluster = self._cluster(job, limit)
        if self.minutes and cluster is None:
            raise self._no_rates("--minutes")
        result = plan(job, limit, images, self.epochs or 20.0, self.minutes or 0.0, cluster)
        points = self._simulate(result, cluster) if self.simulate or self.plot else []
        coverage = simulate_all_coverage(images, self.batch) if points else []
        if self.json:
            simulated = {"scale": [asdict(p) for p in points], "coverage": [asdict(c) for c in coverage]}
            print_json({"model": self.model, **result.to_dict(), **(simulated if points else {})})
            return 0
        self._print(result)
        if points:
            _print_points(points)
            _print_coverage(coverage)
        return 0

    def _data(self) -> "tuple[ViTConfig, int]":
        """Return the config of the model to train and the number of training images."""
        from vitkit.data.open import open_data
        from vitkit.model import ViT

        if self.data and self.images:
            raise UsageError("--data and --images both set the number of images: give one of them")
        if self.epochs and self.minutes:
            raise UsageError("--epochs and --minutes are two budgets for one run: give one of them")
        for name in ("images", "epochs", "minutes", "batch", "image_size", "flops"):
            if (given := getattr(self, name)) is not None and not 0 < given < math.inf:
                raise UsageError(f"{flag(name)} {given:g}: must be above 0")
        (config, model_class), images = open_config(self.model), self.images or 1_281_167
        if model_class is not ViT:
            raise UsageError(f"{self.model} is a {model_class.__name__}: only the layers of a plain ViT can be planned")
        if self.data:
            data = open_data(self.data, label=self.label, data_dir=self.data_dir)
            if "train" not in data.splits:
                raise UsageError(f"--data {self.data} has no train split: plan with --images instead")
            config, images = config.replace(num_classes=len(data.class_names)), len(data.splits["train"])
        return config.replace(image_size=self.image_size) if self.image_size else config, images

    def _limit(self) -> float:
        from vitkit.plan.units import parse_bytes

        if (self.gpus and self.memory) or (self.gpu_memory and not self.gpus):
            raise UsageError("--gpu-memory goes with --gpus, --memory with a CPU: give one of them")
        if self.gpus:
            if not self.gpu_memory:
                raise UsageError("--gpus needs --gpu-memory, the memory of one GPU, such as 80GB")
            return parse_bytes(self.gpu_memory, "--gpu-memory")
        return parse_bytes(self.memory, "--memory") if self.memory else _installed_memory()

    def _job(self, config: "ViTConfig") -> "Job":
        from vitkit.plan.job import Job
        from vitkit.plan.parameter_count import parameters
        from vitkit.training.data_parallel import data_parallel_cores

        device: Literal["cpu", "cuda"] = "cuda" if self.gpus else "cpu"
        return Job(
            config, self.batch, max(self.gpus, 1),
            shard=self.shard,
            optimizer=self.optimizer,
            precision=self.precision or ("bf16" if self.gpus else "fp32"),
            device=device,
            cores=data_parallel_cores(parameters(config).total, device),
        )  # fmt: skip

    def _cluster(self, job: "Job", limit: float) -> "Cluster | None":
        from vitkit.plan.simulate import Cluster
        from vitkit.plan.step_time import Network, Rates

        for name in ("utilization", "bandwidth", "storage", "node_mtbf", "gpus_per_node"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{flag(name)} {getattr(self, name)}: must be above 0")
        if self.calibrate and self.gpus:
            raise UsageError("--calibrate measures this machine's CPU: with --gpus, give their --flops")
        if self.calibrate:
            from vitkit.plan.calibrate import calibrate

            rates = calibrate(job)
        elif self.flops:
            rates = Rates(self.flops * 1e12 * self.utilization)
        else:
            return None
        return Cluster(
            rates, Network(self.bandwidth * 1e9), limit,
            per_node=self.gpus_per_node,
            node_mtbf=self.node_mtbf * 3600,
            storage=self.storage * 1e9,
        )  # fmt: skip

    def _simulate(self, result: "RunPlan", cluster: "Cluster | None") -> "list[ScalePoint]":
        from vitkit.plan.plots import plot_scaling
        from vitkit.plan.simulate import simulate_scaling

        if cluster is None:
            raise self._no_rates("--simulate")
        points = simulate_scaling(result.job, cluster)
        if not any(p.micro_batch for p in points):
            raise UsageError(f"{self.model} does not fit on any number of ranks: give more memory, or --shard full")
        if self.plot:
            title = f"{self.model}, {result.job.batch_size:,} images per step"
            plot_scaling(result.job, cluster, points, self.plot, title)
        return points

    def _no_rates(self, what: str) -> Exception:
        return UsageError(f"{what} needs the speed of a step: give --flops, or --calibrate to measure this machine")

    def _print(self, result: "RunPlan") -> None:
        from vitkit.plan.checkpoint_size import daly_interval, state_bytes
        from vitkit.plan.memory import memory
        from vitkit.plan.planner import PARTS
        from vitkit.plan.step_time import communication_volume
        from vitkit.plan.units import format_bytes, format_seconds

        job, m, echo = result.job, memory(result.job), console().print
        rows = [[label, format_bytes(getattr(m, name))] for name, label in PARTS.items() if getattr(m, name)]
        rows += [[f"peak ({m.peak_phase})", format_bytes(m.peak)], ["available", format_bytes(result.limit)]]
        hardware = f"{job.ranks} GPU{'s' * (job.ranks > 1)}" if job.device == "cuda" else "a CPU"
        title = f"{self.model} on {hardware}, batch size {job.batch_size}: memory of one rank"
        print_table(title, ["part", "size"], rows)
        print_table(
            "micro-batches that fit",
            ["option", "micro-batch", "peak"],
            [[w.what, w.micro_batch or "none", format_bytes(w.memory.peak)] for w in result.options],
        )
        if not result.fits:
            advice = "more memory or a smaller model"
            advice = f"images of {result.smaller_image} pixels" if result.smaller_image else advice
            echo(f"does not fit, even with a micro-batch of 1: use {advice}", markup=False)
            return
        sent = {s: format_bytes(communication_volume(job.replace(shard=s)).total) for s in ("none", "full")}
        if job.ranks > 1:
            echo(f"sent per rank and step: {sent['none']} with DDP, {sent['full']} with FSDP")
        saved = f"checkpoint: {format_bytes(state_bytes(job))}"
        if result.step and result.cluster and result.seconds:
            s, failures = result.step, result.cluster.failures(job)
            waits = f", of which {format_seconds(s.waiting)} waiting for communication" if job.ranks > 1 else ""
            echo(
                f"step: {format_seconds(s.seconds)}{waits}; {job.batch_size / s.seconds:,.0f} images/s; "
                f"{result.epochs:,.1f} epochs of {result.images:,} images: {result.steps:,} steps, "
                f"{format_seconds(result.seconds)}"
            )
            saved += f", {format_seconds(failures.write)} to write"
            if job.ranks > 1:
                every = format_seconds(daly_interval(failures))
                saved += f", one every {every} for a mean time between failures of {format_seconds(failures.mtbf)}"
        echo(saved)
        echo(self._command(result), markup=False)

    def _command(self, result: "RunPlan") -> str:
        from vitkit.plan.memory import MALLOC

        nodes, local = -(-self.gpus // self.gpus_per_node), min(self.gpus, self.gpus_per_node)
        rendezvous = "--standalone" if nodes < 2 else f"--nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint HOST"
        launch = "vitkit" if self.gpus < 2 else f"torchrun {rendezvous} --nproc-per-node {local} -m vitkit"
        malloc = [] if not self.memory else [f"{name}={value}" for name, value in MALLOC.items()]
        budget = ["--minutes", f"{self.minutes:g}"] if self.minutes else ["--epochs", f"{result.epochs:g}"]
        size = [f"preprocess.size={self.image_size}"] if self.image_size else []
        sets = [f"--set {setting}" for setting in (*result.settings(), *size)]
        weights = "--init" if is_checkpoint(self.model) else "--model"
        train = ["train", self.data or "DATA", weights, self.model, "--out", "runs/planned", *budget]
        train += ["--label", self.label] if self.label != "label" else []
        train += ["--data-dir", self.data_dir] if self.data_dir else []
        return " ".join([*malloc, launch, shlex.join(train), *sets])


def _installed_memory() -> float:
    if not hasattr(os, "sysconf"):  # Windows
        raise UsageError("this system does not report its memory: give --memory, such as 16GB")
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:  # the limit of a container
        return min(machine, float(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    except (OSError, ValueError):  # no such file, or "max"
        return machine


def _print_points(points: "list[ScalePoint]") -> None:
    from vitkit.plan.units import format_bytes, format_seconds

    print_table(
        "the same batch size on more ranks",
        ["ranks", "micro-batch", "step", "images/s", "sent", "MTBF", "checkpoint every", "goodput", "simulated"],
        [
            [p.ranks, f"{p.micro_batch}{' (recompute)' if p.checkpoint else ''}", format_seconds(p.step_seconds),
             f"{p.images_per_s:,.0f}", format_bytes(p.sent_bytes), format_seconds(p.mtbf), format_seconds(p.interval),
             f"{p.goodput:.1%}", f"{p.simulated_goodput:.1%}"]
            if p.micro_batch else [p.ranks, "does not fit", "", "", "", "", "", "", ""]
            for p in points
        ],
    )  # fmt: skip


def _print_coverage(coverage: "list[Coverage]") -> None:
    *each, failing = coverage
    wrong = [c.ranks[0] for c in each if not c.exact] + ([0] if not failing.exact else [])
    if wrong:
        raise WorkError(f"samples were lost or repeated on {wrong} ranks (0: with failures): please report this bug")
    console().print(
        f"samples: each exactly once per epoch on {each[0].ranks[0]} to {each[-1].ranks[0]:,} ranks, and in "
        f"{failing.epochs} epochs with {len(failing.ranks) - 1} failures, each resumed on another number of ranks "
        f"({failing.steps} steps, of which {failing.steps - failing.lasting} were repeated)"
    )
