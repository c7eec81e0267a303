"""What a run comes to: the model measured on images it did not learn from, and the files that say so."""

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from vitkit.atomic import sha256, write_json
from vitkit.data.dataset import Split
from vitkit.data.loader import View
from vitkit.evaluation import Predictions, evaluate_predictions, predict_logits, predict_split
from vitkit.evaluation.predictions import save_predictions
from vitkit.model import ViT, create_model
from vitkit.runtime.data_parallel import ThreadedInference
from vitkit.training import checkpoint
from vitkit.training.fsdp import is_sharded
from vitkit.training.state import State
from vitkit.training.task import Parts, info
from vitkit.weights.model_dir import WEIGHTS, save_model

BATCH = 256  # images that are measured at a time


@dataclass(frozen=True)
class Result:
    run: str
    val: dict[str, Any]
    test: dict[str, Any] | None
    epochs: float
    seconds: float
    steps: int
    parameters: int
    skipped_updates: int
    weights_sha256: str
    is_main: bool = True  # False in the processes that only helped: the files and the hash are the main one's

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "is_main"}


def predict(parts: Parts, model: ViT, images: View, split: Split, bf16: bool) -> Predictions:
    """The model's logits for a split and how it is seen. Processes take the batches in turns and tell each other.

    All run equally many, for the forward of a model that is cut over them needs them all: where the last round lacks
    some, the last batch is run again.
    """
    preprocess, world, total = parts.task.preprocess, parts.world, -(-len(split) // BATCH)
    rounds = -(-total // world.size)
    mine = [min(n, total - 1) for n in range(world.rank, rounds * world.size, world.size)]
    labels = torch.split(torch.from_numpy(split.labels), BATCH)
    pixels = (preprocess.normalize(batch.to(world.device)) for batch in images.batches(BATCH, mine))
    answering = model if is_sharded(model) else ThreadedInference(model)
    with torch.autocast(world.device.type, dtype=torch.bfloat16, enabled=bf16):
        logits, _ = predict_logits(answering, zip(pixels, (labels[n] for n in mine), strict=True))
    parted = np.split(logits, np.cumsum([len(labels[n]) for n in mine])[:-1])
    every = {n: part for each in world.everyones(dict(zip(mine, parted, strict=True))) for n, part in each.items()}
    names = [split.images.name(i) for i in range(len(split))]
    together = np.concatenate([every[n] for n in range(total)])
    return Predictions(together, split.labels.astype(np.int64), parts.task.data.class_names, names)


def predict_test(parts: Parts, model: ViT, split: Split) -> Predictions:
    """The same for images that are looked at once, by a model that every process has: each takes a run of them."""
    world, names = parts.world, parts.task.data.class_names
    ranks = min(world.size, len(split))
    edges = np.linspace(0, len(split), ranks + 1).astype(int)
    mine = split.subset(np.arange(*edges[[world.rank % ranks, world.rank % ranks + 1]]))
    found = predict_split(model, mine, parts.task.preprocess, names, corrupt_limit=parts.recipe.corrupt_limit)
    parted = world.everyones(found)[:ranks]
    return Predictions(
        np.concatenate([each.logits for each in parted]),
        np.concatenate([each.labels for each in parted]),
        names,
        [name for each in parted for name in each.names or ()],
        [line for each in parted for line in each.skipped],
    )


def finish(parts: Parts, state: State, began: float) -> Result:
    """The best weights by validation become the model; the test split, if there is one, is looked at once.

    In float32, as the model folder will be used.
    """
    task, world, model = parts.task, parts.world, _best_model(parts, state)
    found = {"val": predict(parts, model, task.val_images, task.val, bf16=False)}
    if task.test is not None:
        found["test"] = predict_test(parts, model, task.test)
    measured = {name: evaluate_predictions(predictions) for name, predictions in found.items()}
    if world.is_main:
        for name, predictions in found.items():
            save_predictions(parts.folder / f"predictions-{name}.safetensors", predictions)
        metrics = {f"{name}_top1": round(m.top1, 6) for name, m in measured.items()}
        told = info(parts.recipe, task, model.info).replace(metrics=metrics)
        save_model(model, parts.folder / "model", told)
    result = Result(
        run=str(parts.folder),
        val=measured["val"].to_dict(),
        test=measured["test"].to_dict() if "test" in measured else None,
        epochs=parts.epoch(state.clock.step),
        seconds=round(time.monotonic() - began, 2),
        steps=state.clock.step,
        parameters=sum(q.numel() for q in model.parameters()),
        skipped_updates=state.bad_steps,
        weights_sha256=sha256(parts.folder / "model" / WEIGHTS) if world.is_main else "",
        is_main=world.is_main,
    )
    if world.is_main:
        write_json(parts.folder / "result.json", result.to_dict())
    return result


def _best_model(parts: Parts, state: State) -> ViT:
    """Whole in every process, also where it was cut over them for training: there without gradients or optimizer."""
    model, world = state.model, parts.world
    if is_sharded(model):
        model = create_model(state.model.config, device=world.device)
        model.info = state.model.info
    world.first(lambda: _load_best(parts, state, model))
    world.spread(model.state_dict().values())
    return model


def _load_best(parts: Parts, state: State, model: ViT) -> None:
    step, digest = state.best["step"], state.best["sha256"]
    model.load_state_dict(checkpoint.read_best(parts.folder / "checkpoints", step, digest))
