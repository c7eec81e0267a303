"""Chooses an engine for the amount of work: eager for little, the fastest one in a timed trial for much.

No fixed rule replaces the trial. In float32 on a CPU without AMX, ONNX Runtime takes 0.74 of eager's time for one image
of ViT-B/16 and 0.91 for eight, and torch's compiler gains nothing (benchmarks/results/contest.txt).
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from vitkit.atomic import write_json
from vitkit.data.preprocess import Preprocess
from vitkit.errors import MissingExtraError, WorkError
from vitkit.inference.engines import Engine, cache_key, make_engine
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
    trial_cache, engines = _trial_cache(model, preprocess, batch_size, candidates), {"eager": eager}
    if trial_cache.exists():
        seconds = json.loads(trial_cache.read_text(encoding="utf-8"))
    elif saved_seconds < 2 * _PREPARE_S * len(candidates):
        return small_job
    else:
        engines |= _prepare(candidates, model, preprocess)
        pixels = np.zeros((batch_size, *preprocess.size, preprocess.channels), np.uint8)
        runs = {name: partial(engine, pixels) for name, engine in engines.items()}
        seconds = medians(time_calls(runs, _ROUNDS))
        with suppress(OSError, WorkError):  # prediction works without the cache
            trial_cache.parent.mkdir(parents=True, exist_ok=True)
            write_json(trial_cache, seconds)
    best = min(seconds, key=lambda name: seconds[name])
    speedup = f"{seconds['eager'] / seconds[best]:.2f} × eager" if best != "eager" else "no other engine is faster"
    engine = engines.get(best) or make_engine(best, model, preprocess)
    return EngineChoice(engine, f"{speedup} in a trial of {', '.join(seconds)} with batches of {batch_size}")


def _candidates(device: torch.device) -> list[str]:
    """Return the engines that may beat eager: compiled if it can use bfloat16, and installed runtimes on a CPU."""
    compiled = ["compiled"] if bf16_inference_pays(device) else []
    runtimes = {"onnx": "onnxruntime", "openvino": "openvino"} if device.type == "cpu" else {}
    return compiled + [name for name, package in runtimes.items() if find_spec(package)]


def _prepare(names: list[str], model: ViT, preprocess: Preprocess) -> dict[str, Engine]:
    """Return those of the named engines that can be prepared on this machine."""
    engines = {}
    for name in names:
        with suppress(MissingExtraError, WorkError, OSError):  # no converter, no C++ compiler, no disk space
            engines[name] = make_engine(name, model, preprocess)
    return engines


def _trial_cache(model: ViT, preprocess: Preprocess, batch_size: int, candidates: list[str]) -> Path:
    machine = torch.__version__, dict(torch.cpu.get_capabilities()), torch.get_num_threads()
    key = cache_key(model, "fastest", preprocess.size, batch_size, candidates, machine)
    return cache_folder() / "engines" / f"{key}.json"


def _macs(model: ViT, preprocess: Preprocess) -> float:
    """Return an estimate of the multiply-adds of one image: each encoder weight once per token, and attention."""
    c = model.config
    tokens = preprocess.size[0] * preprocess.size[1] / (c.patch_size[0] * c.patch_size[1]) + c.prefix
    weights = sum(p.numel() for p in model.blocks.parameters())
    return tokens * weights + 2 * c.depth * tokens**2 * c.heads * c.head_width
