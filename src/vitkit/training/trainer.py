"""`train(recipe)`: the training of a model, in the order in which it happens.

prepare     data, model, optimizers; or the newest saved state
tune        precision, compilation and pace, by a short trial
fit         step by step: batch → loss → gradients → update, with validations and saves on the way
finish      the best weights by validation, measured once on test, in a model folder
"""

import contextlib
import dataclasses
import signal
import time
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vitkit.data.loader import Batch
from vitkit.data.mixup import mixup_cutmix
from vitkit.data.rng import uniform
from vitkit.data.sampler import largest_share
from vitkit.errors import Interrupted, NotFiniteError, WorkError, is_out_of_memory
from vitkit.evaluation import Predictions, evaluate_predictions
from vitkit.runtime.data_parallel import torch_threads
from vitkit.training import checkpoint, schedule
from vitkit.training import fsdp as sharding
from vitkit.training import optim as optimizer
from vitkit.training.autotune import Choice, tune
from vitkit.training.data_parallel import DataParallelBackward
from vitkit.training.distillation import load_teacher
from vitkit.training.distributed import join
from vitkit.training.init_from import start_from
from vitkit.training.log import Journal, OnRecord, Silent, Window
from vitkit.training.loss import Heads, distilled, soft_targets, supervised
from vitkit.training.recipe import Recipe
from vitkit.training.results import Result, finish, predict, predict_test
from vitkit.training.run_dir import check_folder, hold, is_ours, open_folder
from vitkit.training.signals import Interrupts
from vitkit.training.state import State
from vitkit.training.task import Parts, build_model, choose_model, open_dataset, open_task, prepare

TRIED = 256  # images that tell how long others will take
MAX_BAD_STEPS = 5  # in a row, before a run that only yields NaN is stopped


def train(
    recipe: Recipe,
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    on_record: OnRecord | None = None,
) -> Result:
    """Train as the recipe says, into the run folder `out` (runs/DATA by default).

    With `resume`, or where torchrun has started the processes of the same job again, go on from the newest whole
    checkpoint of that folder. `on_record(folder)` is called whenever numbers were recorded there; what goes wrong in
    it is said and does not stop the run.
    """
    began, folder = time.monotonic(), Path(out) if out else Path("runs") / Path(recipe.data).stem
    world, log = join(recipe.machine.device), None
    resume, held = resume or world.tell(is_ours(folder)), contextlib.ExitStack()
    try:
        held.enter_context(torch_threads(recipe.machine.threads or torch.get_num_threads()))
        data = open_dataset(recipe)
        recipe, teacher = load_teacher(choose_model(recipe, data))
        world.first(lambda: check_folder(folder, recipe, data, resume))
        start = start_from(recipe)
        task = world.in_turn(lambda: open_task(recipe, data, start, quiet=quiet or not world.is_main))
        model = build_model(recipe, task, start).to(world.device)
        world.first(lambda: held.enter_context(hold(folder)))  # only now: a mistake before this leaves nothing behind
        world.first(lambda: check_folder(folder, recipe, data, resume))  # another run may have begun there meanwhile
        world.first(lambda: open_folder(folder, recipe, data))
        log = Journal(folder, quiet, on_record) if world.is_main else Silent()
        parts, state = prepare(recipe, folder, world, log, task, model, teacher, resume)
        with Interrupts() as interrupts:  # until here, leaving at once loses nothing
            run = Run(parts, state, began, interrupts)
            run.tune()
            with torch_threads(run.threads_beside_steps):
                run.fit()
            return finish(parts, state, run.began)
    finally:
        if log:
            log.close()
        held.close()
        world.leave()


class Run:
    """One run on its way."""

    def __init__(self, parts: Parts, state: State, began: float, interrupts: Interrupts) -> None:
        self.parts, self.state, self.interrupts = parts, state, interrupts
        self.began = began - state.clock.seconds
        self.saved_at = time.monotonic()
        module = Heads(state.model) if parts.teacher else state.model
        self.module = sharding.replicate(module, state.model, parts.world)
        self.spread = DataParallelBackward(self.module, parts.cores)

    @property
    def threads_beside_steps(self) -> int:
        """Where steps are spread one thread does what lies between them, and makes the next batch: others that were
        woken for it would wait in a loop for more, on cores that have images to see to."""
        return 1 if self.parts.cores > 1 and not self.state.choice.compile else torch.get_num_threads()

    @cached_property
    def compiled(self) -> DataParallelBackward:
        """One core: threads cannot share a compiled module."""
        return DataParallelBackward(sharding.compiled(self.module, self.state.model), cores=1)

    def tune(self) -> None:
        """Choose once, on the first start; a resumed run keeps what was chosen."""
        r, clock = self.parts.recipe, self.state.clock
        if not clock.total and not clock.minutes:  # the classifier is fitted, and no step is to follow
            self.state.choice = Choice(made=True)
        if not self.state.choice.made:
            batch = self.parts.feed.batch(0, self._size_at(1.0))  # where most of the time goes
            chosen = tune(r, clock.total, lambda choice: self._trial(batch, choice), self.parts.world)
            micro = self.state.choice.micro_batch or r.machine.micro_batch  # as the trials left it
            self.state.choice = dataclasses.replace(chosen, micro_batch=micro)
        self.parts.log.say(f"{self.parts.task.data.name}: {self._describe()}")
        if clock.step == 0:
            if clock.minutes:
                self._measure_pace()
            self._save()  # what was chosen by timing must not be chosen again after a kill

    def _trial(self, batch: Batch, choice: Choice) -> None:
        """Gradients that are thrown away: nothing of the state changes but the memory that was found to be there."""
        known = self.state.choice.micro_batch  # what an earlier trial found to fit
        self.state.choice = dataclasses.replace(choice, micro_batch=known or choice.micro_batch)
        try:
            self._gradients_within_memory(batch)
        finally:
            self._clear_gradients()
        if self.parts.world.device.type == "cuda":  # it is timed, and would only have been begun
            torch.cuda.synchronize()

    def _measure_pace(self) -> None:
        """After two trials the compilation is over; the third one is timed, and a validation."""
        batch = self.parts.feed.batch(0, self._size(0))
        for _ in range(3):
            started = time.monotonic()
            self._trial(batch, self.state.choice)
        step_seconds, started = time.monotonic() - started, time.monotonic()
        self._predict_val()
        self.state.clock.validation_seconds = time.monotonic() - started
        self.state.clock.final_seconds = self._seconds_to_judge()
        self._replan(step_seconds)

    def _seconds_to_judge(self) -> float:
        """The chosen weights on validation and test, in float32 and from the files: by how long some images take."""
        task, clock = self.parts.task, self.state.clock
        images = len(task.val) + len(task.test or ())
        if sharding.is_sharded(self.state.model):  # it is put together for that, and here it is not
            return clock.validation_seconds * images / len(task.val)
        some = task.val.subset(np.arange(min(len(task.val), TRIED)))  # test images are looked at once, at the end
        started = time.monotonic()
        predict_test(self.parts, self.state.model, some)
        return (time.monotonic() - started) * images / len(some)

    def fit(self) -> None:
        clock, every = self.state.clock, self._validation_interval()
        window = Window()
        for batch in self.parts.feed.stream(clock.step, self._size, self.parts.recipe.machine.workers):
            if clock.done or self._has_stopped_early():
                break
            window.add(*self.update(batch), images=self.parts.batch)
            report, save, stop = self.parts.world.any(window.due, self._save_is_due(), self._is_to_stop())
            if report or clock.done:
                self._report(window)
                self._replan(window.step_seconds)
                window = Window()
            started = time.monotonic()
            if clock.step % every == 0 or clock.done:
                self.validate()
            if save or stop or clock.done or self._has_stopped_early():
                self._save()
            if stop:
                self._settle()
                raise Interrupted(self.interrupts.received or signal.SIGTERM, str(self.parts.folder))
            window.pause(time.monotonic() - started)
        if self.state.validated_at != clock.step:  # the time ran out while a state was being saved, or no step was due
            self.validate()
            self._save()
        if self._has_stopped_early():
            self.parts.log.say(f"no better validation in {self.state.since_best}: stopped early")
        self._settle()

    def update(self, batch: Batch) -> tuple[float, float, float]:
        """One step. Returns the batch's loss, accuracy and gradient norm; an update that is not finite is left out."""
        state, r = self.state, self.parts.recipe
        progress = (state.clock.progress_at(state.clock.step) + state.clock.progress_at(state.clock.step + 1)) / 2
        # Dropout and stochastic depth draw from torch's generator: started anew at every step, it has no history.
        torch.manual_seed(int(uniform("step", r.seed, state.clock.step, self.parts.world.rank) * 2**53))
        loss, hits = self._gradients_within_memory(batch)
        norm = optimizer.clip(state.optimizers, r.optimizer.clip)
        if bool(torch.isfinite(loss)) and bool(torch.isfinite(norm)):
            optimizer.set_rate(state.optimizers, schedule.rate(progress, r.schedule))
            for each in state.optimizers:
                each.step()
            if state.average:
                state.average.update(state.model, schedule.ema_decay(state.clock.step, r.optimizer.ema))
            state.bad_in_a_row = 0
        else:
            self._skip_update(float(loss), float(norm))
        self._clear_gradients()
        self._look_at_the_clock()
        state.clock.tick()
        return float(loss), float(hits) / self.parts.batch, float(norm)

    def _gradients_within_memory(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Out of memory: half as many images at a time, the same step."""
        while True:
            try:
                return self._gradients(batch, self.state.choice)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                micro = self.state.choice.micro_batch or len(batch.labels)
                if not is_out_of_memory(error) or micro < 2:
                    raise
                if self.parts.world.size > 1:  # the others would wait for a part that never comes
                    todo = f"--resume --set machine.micro_batch={micro // 2}"
                    raise WorkError(f"out of memory: go on with {todo}") from error
                self._clear_gradients()
                self.state.choice = dataclasses.replace(self.state.choice, micro_batch=micro // 2)
                self.parts.log.say(f"out of memory: going on with {micro // 2} images at a time")

    def _gradients(self, batch: Batch, choice: Choice) -> tuple[Tensor, Tensor]:
        """Add the gradients of the batch's mean loss to the parameters; micro-batch by micro-batch if need be.

        Processes average their gradients, so each weighs an image by the number of processes over the global batch.
        All go through as many micro-batches as the one with most images; who has none left sends an image of weight 0.
        """
        device, r, task, ranks = self.parts.world.device, self.parts.recipe, self.parts.task, self.parts.world.size
        total, hits = torch.zeros((), device=device), torch.zeros((), device=device)
        images = task.preprocess.normalize(batch.images.to(device, non_blocking=True))
        targets = soft_targets(batch.labels.to(device), task.classes, r.loss.label_smoothing)
        images, targets, answers = self._mixed(images, targets, batch)
        most = largest_share(self.parts.batch, ranks)
        micro, spread = choice.micro_batch or most, self.compiled if choice.compile else self.spread

        def work(module: nn.Module, rows: slice) -> tuple[Tensor, Tensor]:
            part, goal, weights = images[rows], targets[rows], self.parts.class_weights
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=choice.bf16):
                if self.parts.teacher is None:
                    return supervised(module, part, goal, weights)
                told = self.parts.teacher.answers(part) if answers is None else answers[rows]
                return distilled(module, part, goal, told, r.distill, weights)

        for start in range(0, most, micro):
            rows = slice(start, min(start + micro, len(images))) if start < len(images) else slice(0, 1)
            weight = (rows.stop - rows.start) * ranks / self.parts.batch if start < len(images) else 0.0
            with sharding.holding(self.module, more=start + micro < most):
                loss, hit = spread.backward(work, rows, weight)
            total, hits = total + loss * weight, hits + (hit if weight else 0)
        both = self.parts.world.sum(torch.stack([total, hits]))
        return both[0] / ranks, both[1]

    def _mixed(self, images: Tensor, targets: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Images, labels and what the teacher said before of the images, mixed alike; None: it is asked as it goes."""
        teacher, augment = self.parts.teacher, self.parts.recipe.augment
        answers = teacher.remembered(batch, images.device) if teacher else None
        if answers is None:
            return (*mixup_cutmix(images, targets, batch.keys, augment), None)
        images, both = mixup_cutmix(images, torch.cat([targets, answers], dim=1), batch.keys, augment)
        classes = targets.shape[1]
        return images, both[:, :classes], both[:, classes:]

    def _clear_gradients(self) -> None:
        for each in self.state.optimizers:
            each.zero_grad(set_to_none=True)

    def _skip_update(self, loss: float, norm: float) -> None:
        self.state.bad_steps += 1
        self.state.bad_in_a_row += 1
        self.parts.log.say(f"step {self.state.clock.step}: loss {loss}, gradient norm {norm}: update left out")
        if self.state.bad_in_a_row >= MAX_BAD_STEPS:
            self.state.bad_in_a_row = 0  # who goes on, with other settings, has as many again
            self._save()
            self._settle()
            raise WorkError(
                f"{MAX_BAD_STEPS} steps in a row without a finite gradient; the last good weights are saved in "
                f"{self.parts.folder}: --resume with machine.precision=fp32, or begin anew with a lower optimizer.lr"
            )

    def validate(self) -> None:
        """Measure on the validation split, keep the weights if they are the best so far."""
        state, started = self.state, time.monotonic()
        if state.average:
            state.average.swap(state.model)
        try:
            evaluation = evaluate_predictions(self._predict_val())
        except NotFiniteError as error:
            raise WorkError(
                f"the run has diverged: {error}; what was saved before is in {self.parts.folder}: --resume with "
                "machine.precision=fp32, or begin anew with a lower optimizer.lr"
            ) from error
        found = {"top1": evaluation.top1, "top5": evaluation.top5, "loss": evaluation.nll, "n": evaluation.n}
        state.since_best, state.validated_at = state.since_best + 1, state.clock.step
        better = not state.best or (found["top1"], -found["loss"]) > (state.best["top1"], -state.best["loss"])
        if better or self.parts.recipe.budget.choose == "last":
            state.best, state.since_best = {"step": state.clock.step, **found}, 0
            weights = sharding.gather(state.model.state_dict(), self.parts.world)
            if self.parts.world.is_main:
                folder = self.parts.folder / "checkpoints"
                state.best["sha256"] = checkpoint.write_best(folder, state.clock.step, weights)
        if state.average:
            state.average.swap(state.model)
        state.clock.validation_seconds = time.monotonic() - started
        epoch = self.parts.epoch(self.state.clock.step)
        self.parts.log.record(state.clock.step, epoch=epoch, **{f"val_{k}": v for k, v in found.items()})
        chosen = self.parts.recipe.budget.choose == "best" and state.since_best == 0
        marker = "  best so far" if chosen else ""
        self.parts.log.say(
            f"epoch {epoch:5.1f}   val {found['top1']:.2%}   loss {found['loss']:.4f}   "
            f"{state.clock.seconds / 60:.1f} min{marker}"
        )

    def _predict_val(self) -> Predictions:
        task = self.parts.task
        with torch_threads(max(torch.get_num_threads(), self.parts.cores)):
            return predict(self.parts, self.state.model, task.val_images, task.val, self.state.choice.bf16)

    def _report(self, window: Window) -> None:
        r, clock = self.parts.recipe, self.state.clock
        lr = r.optimizer.lr * schedule.rate(clock.progress, r.schedule)
        numbers = window.means() | {"lr": lr}
        self.parts.log.record(clock.step, epoch=self.parts.epoch(self.state.clock.step), **numbers)
        text = f"loss {numbers['loss']:.3f} acc {numbers['accuracy']:.1%} {numbers['images_per_s']:,.0f} img/s"
        self.parts.log.advance(clock.step, clock.total, text)

    def _replan(self, step_seconds: float) -> None:
        """With a budget of minutes: how many more steps fit, by the pace of late."""
        clock = self.state.clock
        if not clock.minutes:
            return
        reserve = clock.validation_seconds + clock.final_seconds + 2.0
        self._look_at_the_clock()
        pace = step_seconds + clock.validation_seconds / self._validation_interval()
        clock.replan(*(self.parts.world.share(value) for value in (pace, reserve)))

    def _look_at_the_clock(self) -> None:
        seconds = time.monotonic() - self.began
        # With a budget of minutes the time decides what happens next: then all processes go by the main one's.
        self.state.clock.seconds = self.parts.world.share(seconds) if self.state.clock.minutes else seconds

    def _is_to_stop(self) -> bool:
        return bool(self.interrupts.received) or self.parts.world.deserted

    def _save_is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= 60 * self.parts.recipe.keep.every_minutes

    def _save(self) -> None:
        self._look_at_the_clock()
        self._settle()
        self.parts.saver.write(self.state.clock.step, self.state.tensors(), self.state.numbers())
        self.saved_at = time.monotonic()

    def _settle(self) -> None:
        """Wait until the last state is on the disk; what none of the states names is of no use then."""
        self.parts.saver.wait()
        if self.parts.world.is_main and self.state.best:
            checkpoint.forget_other_bests(self.parts.folder / "checkpoints", self.state.best["step"])

    def _has_stopped_early(self) -> bool:
        patience = self.parts.recipe.budget.early_stop
        return 0 < patience <= self.state.since_best

    def _validation_interval(self) -> int:
        return max(1, round(self.parts.recipe.budget.validate_every * self.parts.feed.sampler.count / self.parts.batch))

    def _size(self, step: int) -> tuple[int, int]:
        return self._size_at(self.state.clock.progress_at(step))

    def _size_at(self, progress: float) -> tuple[int, int]:
        patch = self.state.model.config.patch_size
        return schedule.image_size(progress, self.parts.recipe.schedule, self.parts.task.preprocess.size, patch)

    def _describe(self) -> str:
        r, task, choice = self.parts.recipe, self.parts.task, self.state.choice
        millions = sum(p.numel() for p in self.state.model.parameters()) / 1e6
        how = ("bf16" if choice.bf16 else "fp32") + (", compiled" if choice.compile else "")
        return (
            f"{len(task.train):,} train, {len(task.val):,} val, {len(task.test or ()):,} test images, "
            f"{task.classes} classes; {r.model or r.init} with {millions:.2f} M parameters; "
            f"batch {self.parts.batch}, {how}"
        )
