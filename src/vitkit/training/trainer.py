"""`Trainer`: the training loop. Read `fit` first, then `update`, which is one step."""

import dataclasses
import signal
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vitkit.data.epoch_loader import PlainLoader
from vitkit.data.loader import Batch
from vitkit.data.rng import SampleKeys, uniform
from vitkit.data.sampler import max_rank_rows
from vitkit.data.training_batch import TrainingBatch, prepare_batch
from vitkit.errors import ConfigError, Interrupted, NotFiniteError, WorkError, is_out_of_memory
from vitkit.evaluation import Predictions, evaluate_predictions
from vitkit.model.dropout import dropout_layers
from vitkit.runtime.threaded_inference import torch_threads
from vitkit.training.autotune import TunedSettings, tune
from vitkit.training.checkpoint import TrainingState
from vitkit.training.data_parallel import DataParallelBackward, Means
from vitkit.training.ema import ema_decay
from vitkit.training.fsdp import compile_module, is_sharded, no_sync_unless_last, wrap_ddp
from vitkit.training.log import StepMetrics
from vitkit.training.objective import ObjectiveModule, as_tensors, check_metrics, is_custom, needs_whole_batch
from vitkit.training.optim import clip_gradients, set_learning_rate
from vitkit.training.recipe import Budget
from vitkit.training.results import predict_test, predict_val
from vitkit.training.run_dir import record_choice
from vitkit.training.schedule import image_size, lr_factor
from vitkit.training.setup import RunContext
from vitkit.training.signals import InterruptHandler

TIMED_IMAGES = 256  # images that are evaluated to predict the duration of the final evaluation
MAX_BAD_STEPS = 5  # consecutive steps without a finite gradient, after which a run stops


def preserved_rng(device: torch.device) -> AbstractContextManager[None]:
    """Return a context that restores torch's global random state, of the CPU and of this device, at its end."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def dropout_seeds(keys: SampleKeys, layers: int) -> Tensor:
    """Return a seed per dropout layer and image of the batch, (layers, B) int32."""
    return torch.from_numpy(((keys.uniform("dropout", layers).T - 0.5) * 2**32).astype(np.int32))


def is_better(found: Mapping[str, Any], best: Mapping[str, Any], budget: Budget) -> bool:
    """Return whether a validation is better than the best one so far, by the metric that the budget names."""
    if budget.monitor not in found:
        raise ConfigError(f"budget.monitor={budget.monitor!r}: a validation has {', '.join(found)}")
    if not best:
        return True
    sign = 1 if budget.goal == "max" else -1
    new, old = (sign * each[budget.monitor] for each in (found, best))
    return (new, -found["loss"]) > (old, -best["loss"])


class Trainer:
    def __init__(self, context: RunContext, state: TrainingState, started: float, interrupts: InterruptHandler) -> None:
        self.context, self.state, self.interrupts = context, state, interrupts
        self.started = started - state.clock.seconds
        self.saved_at = time.monotonic()
        module = ObjectiveModule(state.model, context.objective)
        self.module = wrap_ddp(module, state.model, context.world, all_used=not is_custom(context.objective))
        self.dropouts = len(dropout_layers(self.module))
        drawn_in_turn = self.dropouts and state.tuned.made and not state.tuned.image_dropout
        self.cores = 1 if drawn_in_turn else context.cores  # threads would draw from one generator in undefined order
        self.plain_backward = DataParallelBackward(self.module, self.cores)

    @cached_property
    def compiled_backward(self) -> DataParallelBackward:
        """The backward pass through the compiled module, created on first use.

        It runs on one core, because threads cannot share a compiled module.
        """
        return DataParallelBackward(compile_module(self.module, self.state.model), cores=1)

    # ------------------------------------------------------------------------------------------------- the loop

    def fit(self) -> None:
        """Train until the budget of epochs or minutes is used up, or until early stopping.

        Validate and save checkpoints on the way. After a signal or the death of the launcher, save a checkpoint and
        raise `Interrupted`.
        """
        context, state, clock = self.context, self.state, self.state.clock
        metrics, validate_every = StepMetrics(), self._validation_interval()
        with torch_threads(self._threads_between_steps()):
            for batch in context.loader.stream(clock.step, self._image_size, context.recipe.machine.workers):
                if clock.done or self._has_stopped_early():
                    break
                found = self.update(batch)
                metrics.add(found, images=context.batch_size)
                if context.on_step and context.world.is_main:
                    context.on_step(clock.step, found, state.model)
                report, save, stop = context.world.any(metrics.due, self._save_is_due(), self._stop_is_requested())
                if report or clock.done:
                    self._report(metrics)
                    self._replan(metrics.step_seconds)
                    metrics = StepMetrics()
                paused = time.monotonic()
                if clock.step % validate_every == 0 or clock.done:
                    self.validate()
                if save or stop or clock.done or self._has_stopped_early():
                    self._save()
                if stop:
                    context.checkpoints.flush(state)
                    raise Interrupted(self.interrupts.received or signal.SIGTERM, str(context.folder))
                metrics.exclude(time.monotonic() - paused)
            if state.validated_at != clock.step:  # the time ended during a save, or there was no step to take
                self.validate()
                self._save()
            if self._has_stopped_early():
                context.log.info(f"stopped early: no improvement in {state.since_best} validations")
            context.checkpoints.flush(state)

    def update(self, batch: Batch) -> dict[str, float]:
        """Train on one batch. Return loss, metrics and gradient norm. Skip the update if they are not finite."""
        state, r = self.state, self.context.recipe
        progress = (state.clock.progress_at(state.clock.step) + state.clock.progress_at(state.clock.step + 1)) / 2
        loss, metrics = self._gradients_within_memory(batch)
        norm = clip_gradients(state.optimizers, r.optimizer.clip)
        if bool(torch.isfinite(loss)) and bool(torch.isfinite(norm)):
            set_learning_rate(state.optimizers, lr_factor(progress, r.schedule))
            for optimizer in state.optimizers:
                optimizer.step()
            if state.ema:
                state.ema.update(state.model, ema_decay(state.clock.step, r.optimizer.ema))
            state.bad_in_a_row = 0
        else:
            self._skip_update(float(loss), float(norm))
        self._clear_gradients()
        self._sync_elapsed()
        state.clock.tick()
        return {"loss": float(loss), **{k: float(v) for k, v in metrics.items()}, "gradient_norm": float(norm)}

    def _gradients_within_memory(self, batch: Batch) -> Means:
        """Compute the gradients of a step by `_gradients`. If memory runs out, halve the micro-batch and repeat."""
        seed = int(uniform("step", self.context.recipe.seed, self.state.clock.step, self.context.world.rank) * 2**53)
        while True:
            try:
                with preserved_rng(self.context.world.device):
                    torch.manual_seed(seed)  # for runs without `image_dropout`
                    return self._gradients(batch, self.state.tuned)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                micro_batch = self.state.tuned.micro_batch or len(batch.labels)
                if not is_out_of_memory(error) or micro_batch < 2:
                    raise
                if needs_whole_batch(self.context.objective):
                    raise WorkError(
                        "out of memory: the objective needs the whole batch; use a smaller batch"
                    ) from error
                if self.context.world.size > 1:  # the other ranks wait in a collective of this step
                    raise WorkError(f"out of memory: resume with machine.micro_batch={micro_batch // 2}") from error
                self._clear_gradients()
                self.state.tuned = dataclasses.replace(self.state.tuned, micro_batch=micro_batch // 2)
                self.context.log.info(f"out of memory: continuing with micro-batches of {micro_batch // 2} images")

    def _gradients(self, batch: Batch, tuned: TunedSettings) -> Means:
        """Add the gradients of the mean loss to the parameters. Return loss and metrics of the global batch.

        Processes average their gradients, so each weights an image by the number of processes over the global batch.
        All run as many micro-batches as the process with most images; a process without images left runs one with
        weight 0.
        """
        context, device, ranks = self.context, self.context.world.device, self.context.world.size
        prepared = self._prepare(batch)
        seeds = dropout_seeds(batch.keys, self.dropouts).to(device) if tuned.image_dropout else None

        def loss_fn(module: nn.Module, rows: slice) -> Means:
            if seeds is not None:
                for layer, own in zip(dropout_layers(module), seeds, strict=True):
                    layer.seeds = own[rows]
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=tuned.bf16):
                loss, metrics = module(prepared[rows])
            check_metrics(metrics)
            return loss, as_tensors(metrics, device)

        names: list[str] = []
        total: Tensor | float = 0.0
        most = max_rank_rows(context.batch_size, ranks)
        micro_batch = tuned.micro_batch or most
        parallel = self.compiled_backward if tuned.compile else self.plain_backward
        for start in range(0, most, micro_batch):
            rows = slice(start, min(start + micro_batch, len(prepared))) if start < len(prepared) else slice(0, 1)
            weight = (rows.stop - rows.start) * ranks / context.batch_size if start < len(prepared) else 0.0
            with no_sync_unless_last(self.module, last=start + micro_batch >= most):
                loss, metrics = parallel.backward(loss_fn, rows, weight)
            names = list(metrics)
            total = total + torch.stack([loss, *metrics.values()]) * weight
        assert isinstance(total, Tensor)
        mean, *values = context.world.sum(total) / ranks
        return mean, dict(zip(names, values, strict=True))

    def _prepare(self, batch: Batch) -> TrainingBatch:
        """Return the batch on the device: normalised, with soft targets, after mixup and CutMix."""
        context, recipe, task = self.context, self.context.recipe, self.context.task
        extra_targets = getattr(context.objective, "extra_targets", None)
        return prepare_batch(
            batch, task.preprocess, task.classes, recipe.augment, recipe.loss.label_smoothing, context.world.device,
            extra=extra_targets(batch.keys) if extra_targets else None,
        )  # fmt: skip

    def _clear_gradients(self) -> None:
        for optimizer in self.state.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _skip_update(self, loss: float, norm: float) -> None:
        state, context = self.state, self.context
        state.bad_steps += 1
        state.bad_in_a_row += 1
        context.log.info(f"step {state.clock.step}: update skipped (loss {loss}, gradient norm {norm})")
        if state.bad_in_a_row >= MAX_BAD_STEPS:
            state.bad_in_a_row = 0  # a resumed run has as many chances again
            self._save()
            context.checkpoints.flush(state)
            raise WorkError(
                f"{MAX_BAD_STEPS} steps in a row without a finite gradient; the last good weights are saved in "
                f"{context.folder}: resume with machine.precision=fp32, or start a new run with a lower optimizer.lr"
            )

    # ----------------------------------------------------------------------------- validation, log, checkpoints

    def validate(self) -> None:
        """Evaluate the validation split, and save the weights if they are the best so far."""
        context, state, started = self.context, self.state, time.monotonic()
        if state.ema:
            state.ema.swap(state.model)
        self._set_optimizer_mode("eval")
        try:
            evaluation = evaluate_predictions(self._predict_val())
        except NotFiniteError as error:
            raise WorkError(
                f"the run has diverged: {error}; earlier checkpoints are in {context.folder}: resume with "
                "machine.precision=fp32, or start a new run with a lower optimizer.lr"
            ) from error
        found = {"top1": evaluation.top1, "top5": evaluation.top5, "loss": evaluation.nll, "n": evaluation.n}
        found |= self._evaluate_objective()
        state.since_best, state.validated_at = state.since_best + 1, state.clock.step
        if is_better(found, state.best, context.recipe.budget) or context.recipe.budget.choose == "last":
            state.best, state.since_best = {"step": state.clock.step, **found}, 0
            context.checkpoints.save_best(state)
        self._set_optimizer_mode("train")
        if state.ema:
            state.ema.swap(state.model)
        state.clock.validation_seconds = time.monotonic() - started
        epoch = context.epoch(state.clock.step)
        context.log.record(state.clock.step, epoch=epoch, **{f"val_{k}": v for k, v in found.items()})
        is_best = context.recipe.budget.choose == "best" and state.since_best == 0
        context.log.info(
            f"epoch {epoch:5.1f}   val {found['top1']:.2%}   loss {found['loss']:.4f}   "
            f"{state.clock.seconds / 60:.1f} min{'  best so far' if is_best else ''}"
        )

    def _evaluate_objective(self) -> dict[str, float]:
        """Return loss and metrics of a custom objective on the validation images. Every rank computes all of them."""
        context, task, objective = self.context, self.context.task, self.context.objective
        if not is_custom(objective) or hasattr(
            objective, "extra_targets"
        ):  # such targets exist for training images only
            return {}
        loader = PlainLoader(task.val_view, task.val.labels, task.preprocess, context.batch_size, task.classes)
        module = ObjectiveModule(self.state.model, objective).eval()
        device, means, rows = context.world.device, StepMetrics(), 0
        with torch.no_grad(), preserved_rng(device):
            torch.manual_seed(context.recipe.seed)
            for batch in loader:
                if needs_whole_batch(objective) and rows and len(batch) < context.batch_size:
                    break  # the rest is no whole batch
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.state.tuned.bf16):
                    loss, metrics = module(batch.to(device))
                values = {"objective_loss": loss.float(), **as_tensors(metrics, device)}
                means.add({name: float(value) for name, value in values.items()}, len(batch), weight=len(batch))
                rows += len(batch)
        module.train()
        return means.averages()

    def _set_optimizer_mode(self, mode: Literal["train", "eval"]) -> None:
        """Tell optimizers that average the weights themselves, as schedule-free ones do, what comes next."""
        for optimizer in self.state.optimizers:
            if callable(change := getattr(optimizer, mode, None)):
                change()

    def _predict_val(self) -> Predictions:
        with torch_threads(max(torch.get_num_threads(), self.cores)):
            return predict_val(self.context, self.state.model, self.state.tuned.bf16)

    def _report(self, metrics: StepMetrics) -> None:
        context, clock = self.context, self.state.clock
        lr = context.recipe.optimizer.lr * lr_factor(clock.progress, context.recipe.schedule)
        numbers = {**metrics.averages(), "images_per_s": metrics.images_per_s, "lr": lr}
        context.log.record(clock.step, epoch=context.epoch(clock.step), **numbers)
        shown = f"acc {numbers['accuracy']:.1%}" if "accuracy" in numbers else ""
        text = f"loss {numbers['loss']:.3f} {shown} {numbers['images_per_s']:,.0f} img/s"
        context.log.show_progress(clock.step, clock.total, text)

    def _save(self) -> None:
        self._sync_elapsed()
        self.context.checkpoints.save(self.state)
        self.saved_at = time.monotonic()

    def _save_is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= 60 * self.context.recipe.keep.every_minutes

    def _stop_is_requested(self) -> bool:
        return bool(self.interrupts.received) or self.context.world.launcher_died

    def _has_stopped_early(self) -> bool:
        return 0 < self.context.recipe.budget.early_stop <= self.state.since_best

    def _validation_interval(self) -> int:
        epochs, count = self.context.recipe.budget.validate_every, self.context.loader.sampler.count
        return max(1, round(epochs * count / self.context.batch_size))

    def _image_size(self, step: int) -> tuple[int, int]:
        progress, patch = self.state.clock.progress_at(step), self.state.model.config.patch_size
        return image_size(progress, self.context.recipe.schedule, self.context.task.preprocess.size, patch)

    def _threads_between_steps(self) -> int:
        """Return torch's number of threads: 1 if steps are data-parallel, because idle threads occupy cores."""
        return 1 if self.cores > 1 and not self.state.tuned.compile else torch.get_num_threads()

    # ----------------------------------------------------------------------------------- tuning and time budget

    def tune(self) -> None:
        """Choose precision, compilation and number of steps. A resumed run keeps the choices of its first start."""
        context, state, clock = self.context, self.state, self.state.clock
        self._set_optimizer_mode("train")
        if not state.tuned.made:
            state.tuned = tune(context.recipe, clock.total, context.world)
        context.world.on_main(lambda: record_choice(context.folder, state.tuned.description, self.cores))
        context.log.info(f"{context.task.data.name}: {self._describe()}")
        if clock.step == 0:
            if clock.minutes:
                self._measure_speed()
            self._save()

    def _trial(self, batch: Batch) -> None:
        """Compute the gradients of a batch and drop them."""
        try:
            self._gradients_within_memory(batch)
        finally:
            self._clear_gradients()
        if self.context.world.device.type == "cuda":  # trials are timed
            torch.cuda.synchronize()

    def _measure_speed(self) -> None:
        """Time a step, after two for compilation, and the evaluations. Predict the number of steps from these times."""
        batch, clock = self.context.loader.batch(0, self._image_size(0)), self.state.clock
        for _ in range(3):
            started = time.monotonic()
            self._trial(batch)
        step_seconds, started = time.monotonic() - started, time.monotonic()
        self._predict_val()
        clock.validation_seconds = time.monotonic() - started
        clock.final_seconds = self._final_evaluation_seconds()
        self._replan(step_seconds)

    def _final_evaluation_seconds(self) -> float:
        """Return the predicted seconds of the final evaluation of val and test, by timing some validation images."""
        task, clock = self.context.task, self.state.clock
        images = len(task.val) + len(task.test or ())
        if is_sharded(self.state.model):  # the final evaluation gathers the model, which cannot be done here
            return clock.validation_seconds * images / len(task.val)
        some = task.val.subset(np.arange(min(len(task.val), TIMED_IMAGES)))
        started = time.monotonic()
        predict_test(self.context, self.state.model, some)
        return (time.monotonic() - started) * images / len(some)

    def _replan(self, step_seconds: float) -> None:
        """Predict from the current speed how many steps fit into a budget of minutes. Do nothing for one of epochs."""
        clock, broadcast = self.state.clock, self.context.world.broadcast_scalar
        if not clock.minutes:
            return
        reserve = clock.validation_seconds + clock.final_seconds + 2.0
        self._sync_elapsed()
        step_seconds += clock.validation_seconds / self._validation_interval()
        clock.replan(broadcast(step_seconds), broadcast(reserve))

    def _sync_elapsed(self) -> None:
        """Update the elapsed seconds. In a budget of minutes they affect training: all ranks use the main one's."""
        seconds, clock = time.monotonic() - self.started, self.state.clock
        clock.seconds = self.context.world.broadcast_scalar(seconds) if clock.minutes else seconds

    def _describe(self) -> str:
        context = self.context
        task, recipe = context.task, context.recipe
        millions = sum(p.numel() for p in self.state.model.parameters()) / 1e6
        return (
            f"{len(task.train):,} train, {len(task.val):,} val, {len(task.test or ()):,} test images, "
            f"{task.classes} classes; {recipe.model or recipe.init} with {millions:.2f} M parameters; "
            f"batch {context.batch_size}, {self.state.tuned.description}"
        )
