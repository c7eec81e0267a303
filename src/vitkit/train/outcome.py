"""What a run comes to: the model measured on images it did not learn from, and the files that say so."""

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import torch

from vitkit.data.source import Split
from vitkit.data.views import View
from vitkit.evaluate import Predictions, evaluate_predictions, predict_logits
from vitkit.evaluate.run import predict as predict_split
from vitkit.evaluate.saved import save_predictions
from vitkit.files import sha256, write_json
from vitkit.train import checkpoint
from vitkit.train.setup import Parts, info
from vitkit.train.state import State
from vitkit.weights.folder import WEIGHTS, save_model

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


def predict(parts: Parts, state: State, images: View, split: Split, bf16: bool) -> Predictions:
    """The model's logits for a split and how it is seen."""
    preprocess, device = parts.task.preprocess, parts.world.device
    labels = torch.from_numpy(split.labels)
    batches = (
        (preprocess.normalize(pixels.to(device)), labels[i * BATCH : (i + 1) * BATCH])
        for i, pixels in enumerate(images.batches(BATCH))
    )
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        logits, targets = predict_logits(state.model, batches)
    names = [split.images.name(i) for i in range(len(split))]
    return Predictions(logits, targets, parts.task.data.class_names, names)


def finish(parts: Parts, state: State, began: float) -> Result:
    """The best weights by validation become the model; the test split, if there is one, is looked at once.

    In float32, as the model folder will be used.
    """
    task, world = parts.task, parts.world
    world.first(lambda: _load_best(parts, state))
    world.spread(state.model.state_dict().values())
    found = {"val": predict(parts, state, task.val_images, task.val, bf16=False)}
    if task.test is not None:
        names, limit = task.data.class_names, parts.recipe.corrupt_limit
        found["test"] = predict_split(state.model, task.test, task.preprocess, names, corrupt_limit=limit)
    measured = {name: evaluate_predictions(predictions) for name, predictions in found.items()}
    if world.is_main:
        for name, predictions in found.items():
            save_predictions(parts.folder / f"predictions-{name}.safetensors", predictions)
        metrics = {f"{name}_top1": round(m.top1, 6) for name, m in measured.items()}
        told = info(parts.recipe, task, state.model.info).replace(metrics=metrics)
        save_model(state.model, parts.folder / "model", told)
    result = Result(
        run=str(parts.folder),
        val=measured["val"].to_dict(),
        test=measured["test"].to_dict() if "test" in measured else None,
        epochs=parts.epoch(state.clock.step),
        seconds=round(time.monotonic() - began, 2),
        steps=state.clock.step,
        parameters=sum(q.numel() for q in state.model.parameters()),
        skipped_updates=state.bad_steps,
        weights_sha256=sha256(parts.folder / "model" / WEIGHTS) if world.is_main else "",
        is_main=world.is_main,
    )
    if world.is_main:
        write_json(parts.folder / "result.json", result.to_dict())
    return result


def _load_best(parts: Parts, state: State) -> None:
    step, digest = state.best["step"], state.best["sha256"]
    state.model.load_state_dict(checkpoint.read_best(parts.folder / "checkpoints", step, digest))
