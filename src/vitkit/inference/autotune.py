"""Chooses an engine for the amount of work: eager for little, the fastest one in a timed trial for much.

No fixed rule replaces the trial. In float32 on a CPU without AMX, ONNX Runtime takes 0.74 of eager's time for one image
of ViT-B/16 and 0.91 for eight, and torch's compiler gains nothing (benchmarks/results/contest.txt). The trial also
compares scores: an engine, and with it another precision, is used only if they are within a bound of eager's.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from vitkit.atomic import write_json
from vitkit.data.preprocess import Preprocess
from vitkit.errors import VitkitError, WorkError
from vitkit.export.runtimes import softmax
from vitkit.export.sample_photographs import sample_pixels
from vitkit.inference.engines import Engine, cache_key, machine, make_engine
from vitkit.model import ViT
from vitkit.runtime.cache_dir import cache_folder
from vitkit.runtime.device import bf16_inference_pays
from vitkit.runtime.timing import medians, time_calls

# Rough estimates that decide whether a trial can pay
_CPU_MACS_PER_S = 2e10  # multiply-adds, eager, in float32
_GPU_MACS_PER_S = 2e12  # not measured
_PREPARE_S = 60.0  # to compile or convert a model
_LOAD_S = 1.0
_SAVED_FP32 = 0.1  # share of the eager time that another engine saves
_SAVED_BF16 = 0.5  # not measured
_ROUNDS = 3
_BOUNDS = {"fp32": 1e-4, "bf16": 0.01}  # precision → the largest accepted difference of a score from eager's


@dataclass(frozen=True)
class EngineChoice:
    engine: Engine
    reason: str


def choose_engine(model: ViT, preprocess: Preprocess, images: int | None, batch_size: int) -> EngineChoice:
    """Return the fastest engine for this number of images (None: unknown). Results of trials are cached."""
    eager = make_engine("eager", model, preprocess)
    if images is None:
        return EngineChoice(eager, "ready at once; select another engine for a long job")
    device = model.patch_embed.proj.weight.device
    candidates = _candidates(device)
    macs_per_s = _CPU_MACS_PER_S if device.type == "cpu" else _GPU_MACS_PER_S
    share = _SAVED_BF16 if bf16_inference_pays(device) else _SAVED_FP32
    saved_seconds = share * images * _macs(model, preprocess) / macs_per_s
    small_job = EngineChoice(eager, f"{images:,} image{'s' * (images != 1)}, ready at once")
    if not candidates or images == 1 or saved_seconds < _LOAD_S:
        return small_job
    cache, engines = _trial_path(model, preprocess, batch_size, candidates), {"eager": eager}
    trial = _read_trial(cache)
    if trial is None and saved_seconds < 2 * _PREPARE_S * len(candidates):
        return small_job
    if trial is None:
        engines |= _prepare(candidates, model, preprocess)
        trial = _run_trial(engines, preprocess, batch_size)
        with suppress(OSError, WorkError):  # prediction works without the cache
            cache.parent.mkdir(parents=True, exist_ok=True)
            write_json(cache, asdict(trial))
    accepted = [name for name in trial.seconds if trial.differences[name] <= trial.bounds[name]]
    broken = ""
    for best in sorted(accepted, key=lambda name: trial.seconds[name]):
        engines |= {} if best in engines else _prepare([best], model, preprocess)
        if best in engines:
            break
        broken += f"; {best}, remembered as faster, cannot be started now"
    return EngineChoice(engines[best], trial.reason(best, batch_size) + broken)


@dataclass(frozen=True)
class _Trial:
    """The seconds of each engine, and how far its scores differ from eager's, on sample photographs."""

    seconds: dict[str, float]
    differences: dict[str, float]
    bounds: dict[str, float]

    def reason(self, best: str, batch_size: int) -> str:
        speedup = (
            f"{self.seconds['eager'] / self.seconds[best]:.2f} × eager"
            if best != "eager"
            else "no other engine is better"
        )
        text = f"{speedup} in a trial of {', '.join(self.seconds)} with batches of {batch_size}"
        for name in self.seconds:
            if not self.differences[name] <= self.bounds[name]:
                text += f"; {name} is left out: scores differ from eager by up to {self.differences[name]:.2g}"
        if best == "eager":
            return text
        return f"{text}; scores differ from eager by up to {self.differences[best]:.1g}, bound {self.bounds[best]:g}"


def _run_trial(engines: dict[str, Engine], preprocess: Preprocess, batch_size: int) -> _Trial:
    pixels = np.zeros((batch_size, *preprocess.size, preprocess.channels), np.uint8)
    seconds = medians(time_calls({name: partial(engine, pixels) for name, engine in engines.items()}, _ROUNDS))
    photographs = sample_pixels(preprocess)
    scores = {name: softmax(engine(photographs)) for name, engine in engines.items()}
    differences = {name: float(np.abs(found - scores["eager"]).max()) for name, found in scores.items()}
    return _Trial(seconds, differences, {name: _BOUNDS[_precision(engine)] for name, engine in engines.items()})


def _precision(engine: Engine) -> str:
    return "bf16" if engine.name.endswith("bf16") else "fp32"


def _read_trial(path: Path) -> _Trial | None:
    """Return a remembered trial, or None if there is none that can be read."""
    try:
        trial = _Trial(**json.loads(path.read_text(encoding="utf-8")))
        complete = "eager" in trial.seconds and trial.seconds.keys() == trial.differences.keys() == trial.bounds.keys()
        return trial if complete else None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _candidates(device: torch.device) -> list[str]:
    """Return the engines that may beat eager: compiled if it can use bfloat16, and installed runtimes on a CPU."""
    compiled = ["compiled"] if bf16_inference_pays(device) else []
    runtimes = {"onnx": "onnxruntime", "openvino": "openvino"} if device.type == "cpu" else {}
    return compiled + [name for name, package in runtimes.items() if find_spec(package)]


def _prepare(names: list[str], model: ViT, preprocess: Preprocess) -> dict[str, Engine]:
    """Return those of the named engines that can be prepared on this machine."""
    engines = {}
    for name in names:
        # No converter, no C++ compiler, no disk space, a damaged file in the cache
        with suppress(VitkitError, OSError, RuntimeError):
            engines[name] = make_engine(name, model, preprocess)
    return engines


def _trial_path(model: ViT, preprocess: Preprocess, batch_size: int, candidates: list[str]) -> Path:
    key = cache_key(model, "fastest", preprocess.size, batch_size, candidates, machine(model))
    return cache_folder() / "engines" / f"{key}.json"


def _macs(model: ViT, preprocess: Preprocess) -> float:
    """Return an estimate of the multiply-adds of one image: each encoder weight once per token, and attention."""
    c = model.config
    tokens = preprocess.size[0] * preprocess.size[1] / (c.patch_size[0] * c.patch_size[1]) + c.prefix
    weights = sum(p.numel() for p in model.blocks.parameters())
    return tokens * weights + 2 * c.depth * tokens**2 * c.heads * c.head_width
