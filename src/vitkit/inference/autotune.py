"""Which engine for how much work. A little: eager, ready at once. A lot: the fastest one at hand, found by a trial.

No rule would do in the trial's place. In float32 on a CPU without AMX, one image of ViT-B/16 takes ONNX Runtime 0.74 of
eager's time, eight at once 0.91, and torch's compiler gains nothing (benchmarks/results/contest.txt).
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
from vitkit.inference.engines import Engine, key, make_engine
from vitkit.model import ViT
from vitkit.runtime.cache import cache_folder
from vitkit.runtime.device import bf16_inference_pays
from vitkit.runtime.timing import medians, time_calls

_MACS_PER_S = 2e10  # multiply-adds of a plain processor, eager, in float32
_MACS_PER_S_GPU = 2e12  # of a modest GPU: a guess, none was measured
_PREPARE_S = 60.0  # to compile, or to convert for a runtime; about
_LOAD_S = 1.0
_SAVED = 0.1  # of the eager time, in float32
_SAVED_BF16 = 0.5  # cautious: no machine with fast bf16 was measured
_ROUNDS = 3


@dataclass(frozen=True)
class Choice:
    engine: Engine
    why: str


def choose(model: ViT, preprocess: Preprocess, images: int | None, batch: int) -> Choice:
    """For so many images, `batch` at a time. What a trial found is kept, beside what its engines had to prepare."""
    eager = make_engine("eager", model, preprocess)
    if images is None:
        return Choice(eager, "ready at once; name another engine for a long job")
    device = model.patch_embed.proj.weight.device
    others = _rivals(device)
    pace = _MACS_PER_S if device.type == "cpu" else _MACS_PER_S_GPU
    saved = (_SAVED_BF16 if bf16_inference_pays(device) else _SAVED) * images * _macs(model, preprocess) / pace
    few = Choice(eager, f"{images:,} image{'s' * (images != 1)}, ready at once")
    if not others or images == 1 or saved < _LOAD_S:
        return few
    note, engines = _note(model, preprocess, batch, others), {"eager": eager}
    if note.exists():
        seconds = json.loads(note.read_text())
    elif saved < 2 * _PREPARE_S * len(others):
        return few
    else:
        engines |= _prepare(others, model, preprocess)
        pixels = np.zeros((batch, *preprocess.size, preprocess.channels), np.uint8)
        runs = {name: partial(engine, pixels) for name, engine in engines.items()}
        seconds = medians(time_calls(runs, _ROUNDS))
        with suppress(OSError, WorkError):  # a cache is not worth an error
            note.parent.mkdir(parents=True, exist_ok=True)
            write_json(note, seconds)
    best = min(seconds, key=lambda name: seconds[name])
    ratio = seconds["eager"] / seconds[best]
    found = f"{ratio:.2f} × eager" if best != "eager" else "nothing is faster"
    engine = engines.get(best) or make_engine(best, model, preprocess)
    return Choice(engine, f"{found}, by a trial of {', '.join(seconds)} in batches of {batch}")


def _rivals(device: torch.device) -> list[str]:
    """Who may be faster: the compiler where it may use bf16, other runtimes on a CPU, if they are installed."""
    compiled = ["compiled"] if bf16_inference_pays(device) else []
    runtimes = {"onnx": "onnxruntime", "openvino": "openvino"} if device.type == "cpu" else {}
    return compiled + [name for name, package in runtimes.items() if find_spec(package)]


def _prepare(names: list[str], model: ViT, preprocess: Preprocess) -> dict[str, Engine]:
    engines = {}
    for name in names:
        try:
            engines[name] = make_engine(name, model, preprocess)
        except (MissingExtraError, WorkError, OSError):  # no converter, no C++ compiler, no disk: the others will do
            continue
    return engines


def _note(model: ViT, preprocess: Preprocess, batch: int, others: list[str]) -> Path:
    machine = torch.__version__, dict(torch.cpu.get_capabilities()), torch.get_num_threads()
    return cache_folder() / "engines" / f"{key(model, 'fastest', preprocess.size, batch, others, machine)}.json"


def _macs(model: ViT, preprocess: Preprocess) -> float:
    """Of one image, near enough: every weight of the encoder meets every token, and tokens meet each other."""
    c = model.config
    tokens = preprocess.size[0] * preprocess.size[1] / (c.patch_size[0] * c.patch_size[1]) + c.prefix
    weights = sum(p.numel() for p in model.blocks.parameters())
    return tokens * weights + 2 * c.depth * tokens**2 * c.heads * c.head_width
