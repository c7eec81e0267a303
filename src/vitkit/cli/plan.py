import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from vitkit.cli.args import flag
from vitkit.cli.model import is_checkpoint, open_config
from vitkit.cli.output import console, print_json, print_table
from vitkit.cli.output_paths import check_figure_file
from vitkit.errors import UsageError, WorkError

if TYPE_CHECKING:
    from vitkit.model import ViTConfig
    from vitkit.plan.job import Job
    from vitkit.plan.planner import Answer
    from vitkit.plan.simulate import Cluster, Coverage, Point

Word = Annotated[str | None, arg(metavar="NAME")]
Size = Annotated[str | None, arg(metavar="SIZE")]
Number = Annotated[float | None, arg(metavar="N")]
Count = Annotated[int | None, arg(metavar="N")]


@dataclass(frozen=True)
class Plan:
    """Say before a run what it will need: memory, time, traffic, checkpoints; and what would fit if it does not."""

    model: str
    """A model name, a model folder or a run folder."""
    data: Word = None
    """The data set, for the number of its images and classes."""
    images: Count = None
    """Instead of data: how many training images there are. (default: 1281167, as in ImageNet-1k)"""
    label: str = "label"
    """The column of the class, in a CSV or parquet file."""
    data_dir: Word = None
    """Where named data sets lie; $VITKIT_DATA by default."""
    gpus: int = 0
    """How many GPUs share the batch; 0 plans for one process on a CPU."""
    gpu_memory: Size = None
    """Memory of one GPU, such as 80GB."""
    memory: Size = None
    """Memory that the process may take on a CPU, such as 6GB; by default all of this machine's."""
    epochs: Number = None
    """How often to go through the images. (default: 20)"""
    minutes: Number = None
    """Instead of epochs: how much is seen in this time."""
    batch: int = 256
    """Images per step, over all processes."""
    image_size: Count = None
    """The side of square images instead of the model's own."""
    shard: Literal["none", "full"] = "none"
    """full: weights, gradients and optimizer state are cut over all GPUs (FSDP)."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """What updates the weights."""
    precision: Annotated[Literal["bf16", "fp32"] | None, arg(metavar="bf16|fp32")] = None
    """Of the matrix products: by default bf16 on GPUs, fp32 on a CPU."""
    flops: Number = None
    """The peak of one GPU or CPU in TFLOP/s, at that precision."""
    utilization: float = 0.4
    """The share of that peak that training reaches."""
    bandwidth: float = 25.0
    """GB/s that one GPU sends to the others."""
    storage: float = 2.0
    """GB/s at which checkpoints are written, all processes together."""
    gpus_per_node: int = 8
    """GPUs that fail together."""
    node_mtbf: float = 6300.0
    """Hours between two failures of one node."""
    calibrate: bool = False
    """Measure this machine with a matrix product and a short step instead of asking for --flops."""
    simulate: bool = False
    """Play the run through on 1 to 4,096 ranks: samples, failures, checkpoints."""
    plot: Annotated[str | None, arg(metavar="FILE")] = None
    """Draw the simulation into this PNG, SVG or PDF file."""
    json: bool = False
    """Print one JSON document."""

    def run(self) -> int:
        from vitkit.plan.planner import plan
        from vitkit.plan.simulate import cover_all

        if self.plot:
            check_figure_file(self.plot, "--plot")
        config, images, limit = *self._data(), self._limit()
        job = self._job(config)
        cluster = self._cluster(job, limit)
        if self.minutes and cluster is None:
            raise self._unknown_pace("--minutes")
        answer = plan(job, limit, images, self.epochs or 20.0, self.minutes or 0.0, cluster)
        points = self._simulate(answer, cluster) if self.simulate or self.plot else []
        covered = cover_all(images, self.batch) if points else []
        if self.json:
            print_json({"model": self.model, **answer.to_dict(), **_simulated(points, covered)})
            return 0
        self._show(answer)
        if points:
            _show_points(points)
            _show_coverage(covered)
        return 0

    def _data(self) -> "tuple[ViTConfig, int]":
        """The model as it would be trained, and the number of images it would see."""
        from vitkit.data.open import open_data

        if self.data and self.images:
            raise UsageError("--data and --images both say how many images there are: give one of them")
        if self.epochs and self.minutes:
            raise UsageError("--epochs and --minutes are two budgets for one run: give one of them")
        for name in ("images", "epochs", "minutes", "batch", "image_size", "flops"):
            if (given := getattr(self, name)) is not None and not 0 < given < math.inf:
                raise UsageError(f"{flag(name)} {given:g}: must be above 0")
        config, images = open_config(self.model), self.images or 1_281_167
        if self.data:
            data = open_data(self.data, label=self.label, data_dir=self.data_dir)
            if "train" not in data.splits:
                raise UsageError(f"--data {self.data} has no images in a train split: there is nothing to train on")
            config, images = config.replace(num_classes=len(data.class_names)), len(data.splits["train"])
        return config.replace(image_size=self.image_size) if self.image_size else config, images

    def _limit(self) -> float:
        from vitkit.plan.units import parse_bytes

        if (self.gpus and self.memory) or (self.gpu_memory and not self.gpus):
            raise UsageError("--gpu-memory goes with --gpus, --memory with a CPU: give one of them")
        if self.gpus:
            if not self.gpu_memory:
                raise UsageError("--gpus needs --gpu-memory: how much one of them has, such as 80GB")
            return parse_bytes(self.gpu_memory, "--gpu-memory")
        return parse_bytes(self.memory, "--memory") if self.memory else _installed()

    def _job(self, config: "ViTConfig") -> "Job":
        from vitkit.plan.job import Job
        from vitkit.plan.parameters import parameters
        from vitkit.training.data_parallel import data_parallel_cores

        device: Literal["cpu", "cuda"] = "cuda" if self.gpus else "cpu"
        return Job(
            config, self.batch, max(self.gpus, 1),
            shard=self.shard,
            optimizer=self.optimizer,
            precision=self.precision or ("bf16" if self.gpus else "fp32"),
            device=device,
            cores=data_parallel_cores(config, parameters(config).total, device),
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

    def _simulate(self, answer: "Answer", cluster: "Cluster | None") -> "list[Point]":
        from vitkit.plan.draw import draw
        from vitkit.plan.simulate import scale

        if cluster is None:
            raise self._unknown_pace("--simulate")
        points = scale(answer.job, cluster)
        if not any(p.micro_batch for p in points):
            raise UsageError(f"{self.model} fits on no number of ranks: give more memory, or --shard full")
        if self.plot:
            draw(answer.job, cluster, points, self.plot, f"{self.model}, {answer.job.batch:,} images per step")
        return points

    def _unknown_pace(self, what: str) -> Exception:
        return UsageError(f"{what} needs to know how fast a step is: give --flops, or --calibrate to measure here")

    def _show(self, answer: "Answer") -> None:
        from vitkit.plan.checkpoint import daly, state_bytes
        from vitkit.plan.memory import memory
        from vitkit.plan.planner import PARTS
        from vitkit.plan.step_time import volume
        from vitkit.plan.units import format_bytes, format_seconds

        job, m, say = answer.job, memory(answer.job), console().print
        rows = [[label, format_bytes(getattr(m, name))] for name, label in PARTS.items() if getattr(m, name)]
        rows += [[f"peak, in {m.highest}", format_bytes(m.peak)], ["there is", format_bytes(answer.limit)]]
        who = f"{job.ranks} GPU{'s' * (job.ranks > 1)}" if job.device == "cuda" else "a CPU"
        print_table(f"{self.model} on {who}, {job.batch} images per step: memory of one rank", ["part", ""], rows)
        print_table(
            "what fits",
            ["how", "images at a time", "peak"],
            [[w.what, w.micro_batch or "none", format_bytes(w.memory.peak)] for w in answer.ways],
        )
        if not answer.fits:
            advice = "more memory or a smaller model"
            advice = f"images of {answer.smaller_image} pixels" if answer.smaller_image else advice
            say(f"does not fit, not even one image at a time: use {advice}", markup=False)
            return
        sent = {s: format_bytes(volume(job.replace(shard=s)).total) for s in ("none", "full")}
        if job.ranks > 1:
            say(f"sent by each rank per step: {sent['none']} with DDP, {sent['full']} with FSDP")
        saved = f"checkpoint: {format_bytes(state_bytes(job))}"
        if answer.step and answer.cluster and answer.seconds:
            s, failures = answer.step, answer.cluster.failures(job)
            waits = f", of which {format_seconds(s.waiting)} wait for others" if job.ranks > 1 else ""
            say(
                f"step: {format_seconds(s.seconds)}{waits}; {job.batch / s.seconds:,.0f} images/s; "
                f"{answer.epochs:,.1f} epochs of {answer.images:,} images: {answer.steps:,} steps, "
                f"{format_seconds(answer.seconds)}"
            )
            saved += f", {format_seconds(failures.write)} to write"
            if job.ranks > 1:
                every = format_seconds(daly(failures))
                saved += f"; a failure every {format_seconds(failures.mtbf)} asks for one every {every}"
        say(saved)
        say(self._command(answer), markup=False)

    def _command(self, answer: "Answer") -> str:
        from vitkit.plan.memory import MALLOC

        nodes, local = -(-self.gpus // self.gpus_per_node), min(self.gpus, self.gpus_per_node)
        meet = "--standalone" if nodes < 2 else f"--nnodes {nodes} --rdzv-backend c10d --rdzv-endpoint HOST"
        launch = "vitkit" if self.gpus < 2 else f"torchrun {meet} --nproc-per-node {local} -m vitkit"
        malloc = [] if not self.memory else [f"{name}={value}" for name, value in MALLOC.items()]
        budget = ["--minutes", f"{self.minutes:g}"] if self.minutes else ["--epochs", f"{answer.epochs:g}"]
        size = [f"preprocess.size={self.image_size}"] if self.image_size else []
        sets = [f"--set {setting}" for setting in (*answer.settings(), *size)]
        weights = "--init" if is_checkpoint(self.model) else "--model"
        train = ["train", self.data or "DATA", weights, self.model, "--out", "runs/planned", *budget]
        train += ["--label", self.label] if self.label != "label" else []
        train += ["--data-dir", self.data_dir] if self.data_dir else []
        return " ".join([*malloc, launch, shlex.join(train), *sets])


def _installed() -> float:
    import os

    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:  # a container's share of it
        return min(machine, float(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return machine


def _simulated(points: "list[Point]", covered: "list[Coverage]") -> dict[str, Any]:
    from dataclasses import asdict

    return {"scale": [asdict(p) for p in points], "coverage": [asdict(c) for c in covered]} if points else {}


def _show_points(points: "list[Point]") -> None:
    from vitkit.plan.units import format_bytes, format_seconds

    print_table(
        "the same batch on more ranks",
        ["ranks", "at a time", "step", "images/s", "sent", "failure every", "checkpoint every", "lasts", "simulated"],
        [
            [p.ranks, f"{p.micro_batch}{' twice' if p.checkpoint else ''}", format_seconds(p.step_seconds),
             f"{p.images_per_s:,.0f}", format_bytes(p.sent_bytes), format_seconds(p.mtbf), format_seconds(p.interval),
             f"{p.goodput:.1%}", f"{p.simulated_goodput:.1%}"]
            if p.micro_batch else [p.ranks, "does not fit", "", "", "", "", "", "", ""]
            for p in points
        ],
    )  # fmt: skip


def _show_coverage(covered: "list[Coverage]") -> None:
    *each, failing = covered
    wrong = [c.ranks[0] for c in each if not c.exact] + ([0] if not failing.exact else [])
    if wrong:
        raise WorkError(f"samples were lost or seen twice on {wrong} ranks (0: with failures): a bug, please report it")
    console().print(
        f"samples: each once per epoch on {each[0].ranks[0]} to {each[-1].ranks[0]:,} ranks; and in "
        f"{failing.epochs} epochs with {len(failing.ranks) - 1} failures, after which the run went on with another "
        f"number of ranks: {failing.steps} steps taken, {failing.lasting} of them last"
    )
