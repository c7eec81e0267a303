"""The result of a run: the best weights, evaluated on validation and test, and the files that record it."""

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vitkit.atomic import sha256, write_json
from vitkit.data.dataset import Split
from vitkit.evaluation import Predictions, evaluate_predictions, predict_logits, predict_split
from vitkit.evaluation.predictions import save_predictions
from vitkit.model import ViT, create_model
from vitkit.runtime.threaded_inference import ThreadedInference
from vitkit.training.checkpoint import TrainingState, read_best
from vitkit.training.fsdp import is_sharded
from vitkit.training.setup import RunContext, make_model_info
from vitkit.weights.model_dir import WEIGHTS, save_model

EVAL_BATCH_SIZE = 256


@dataclass(frozen=True)
class Result:
    """The outcome of a training run: metrics of the best weights, duration, SHA-256 of the weights."""

    run: str
    val: dict[str, Any]
    test: dict[str, Any] | None
    epochs: float
    seconds: float
    steps: int
    parameters: int
    skipped_updates: int
    weights_sha256: str
    choice: str  # precision, compilation and micro-batch, given or chosen by the run
    metrics: dict[str, float] = field(default_factory=dict)  # of a custom objective, at the best validation
    is_main: bool = True  # False on the other ranks, which write no files and know no hash

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in dataclasses.asdict(self).items() if key != "is_main"}


def finish(context: RunContext, state: TrainingState, started: float) -> Result:
    """Evaluate the best weights in float32, write the model folder and result.json, and return the result.

    The test split is evaluated only here.
    """
    task, world, folder = context.task, context.world, context.folder
    model = _load_best_model(context, state)
    predictions = {"val": predict_val(context, model, bf16=False)}
    if task.test is not None:
        predictions["test"] = predict_test(context, model, task.test)
    evaluations = {name: evaluate_predictions(each) for name, each in predictions.items()}
    if world.is_main:
        for name, each in predictions.items():
            save_predictions(folder / f"predictions-{name}.safetensors", each)
        metrics = {f"{name}_top1": round(e.top1, 6) for name, e in evaluations.items()}
        info = make_model_info(context.recipe, task, model.info)
        info = info.replace(metrics=metrics, data={**info.data, "precision": state.tuned.description})
        save_model(model, folder / "model", info)
    result = Result(
        run=str(folder),
        val=evaluations["val"].to_dict(),
        test=evaluations["test"].to_dict() if "test" in evaluations else None,
        epochs=context.epoch(state.clock.step),
        seconds=round(time.monotonic() - started, 2),
        steps=state.clock.step,
        parameters=sum(p.numel() for p in model.parameters()),
        skipped_updates=state.bad_steps,
        weights_sha256=sha256(folder / "model" / WEIGHTS) if world.is_main else "",
        choice=state.tuned.description,
        metrics={k: v for k, v in state.best.items() if k not in ("step", "sha256", "top1", "top5", "loss", "n")},
        is_main=world.is_main,
    )
    if world.is_main:
        write_json(folder / "result.json", result.to_dict())
    return result


def _load_best_model(context: RunContext, state: TrainingState) -> ViT:
    """Return the model with the weights of the best validation, complete on every rank even if it was sharded."""
    model, world = state.model, context.world
    if is_sharded(model):
        model = create_model(state.model.config, device=world.device, model_class=type(state.model))
        model.info = state.model.info
    folder, best = context.checkpoints.folder, state.best
    world.on_main(lambda: model.load_state_dict(read_best(folder, best["step"], best["sha256"])))
    world.broadcast_tensors(model.state_dict().values())
    return model


def predict_val(context: RunContext, model: ViT, bf16: bool) -> Predictions:
    """Compute the logits of the validation split.

    Batches are dealt to the ranks in turn, and every rank returns all logits. A sharded forward is a collective, so
    every rank runs the same number of batches. A rank without a batch left repeats the last one.
    """
    task, world, split = context.task, context.world, context.task.val
    batches = -(-len(split) // EVAL_BATCH_SIZE)
    rounds = -(-batches // world.size)
    own = [min(n, batches - 1) for n in range(world.rank, rounds * world.size, world.size)]
    labels = torch.split(torch.from_numpy(split.labels), EVAL_BATCH_SIZE)
    pixels = (task.preprocess.normalize(b.to(world.device)) for b in task.val_view.batches(EVAL_BATCH_SIZE, own))
    module = model if is_sharded(model) else ThreadedInference(model)
    with torch.autocast(world.device.type, dtype=torch.bfloat16, enabled=bf16):
        logits, _ = predict_logits(module, zip(pixels, (labels[n] for n in own), strict=True))
    by_batch = dict(zip(own, np.split(logits, np.cumsum([len(labels[n]) for n in own])[:-1]), strict=True))
    gathered = {n: part for each in world.all_gather(by_batch) for n, part in each.items()}
    names = [split.images.name(i) for i in range(len(split))]
    complete = np.concatenate([gathered[n] for n in range(batches)])
    return Predictions(complete, split.labels.astype(np.int64), task.data.class_names, names)


def predict_test(context: RunContext, model: ViT, split: Split) -> Predictions:
    """Compute the logits of a split, read from files, in float32. Each rank computes a part, and returns all logits."""
    world, names = context.world, context.task.data.class_names
    ranks = min(world.size, len(split))
    edges = np.linspace(0, len(split), ranks + 1).astype(int)
    own = split.subset(np.arange(*edges[[world.rank % ranks, world.rank % ranks + 1]]))
    found = predict_split(model, own, context.task.preprocess, names, corrupt_limit=context.recipe.corrupt_limit)
    parts = world.all_gather(found)[:ranks]
    return Predictions(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.labels for part in parts]),
        names,
        [name for part in parts for name in part.names or ()],
        [line for part in parts for line in part.skipped],
    )
