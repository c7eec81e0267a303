"""`train(recipe)`: a training run from start to end.

set up    data, model, run folder, optimizers; or the newest checkpoint (`setup.py`)
tune      precision and compilation, by the hardware (`autotune.py`); the speed, for a budget of minutes
fit       step by step, with validations and checkpoints (`trainer.py`)
finish    evaluate the best weights and write the model folder (`results.py`)
"""

import dataclasses
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import nn

from vitkit.data.dataset import Dataset
from vitkit.data.open import Arrays, DataSpec
from vitkit.errors import ConfigError
from vitkit.model import ViT
from vitkit.runtime.threaded_inference import torch_threads
from vitkit.training.distillation import load_teacher
from vitkit.training.distributed import join
from vitkit.training.init_from import hash_init, load_init
from vitkit.training.log import Logger, OnRecord, RunLogger
from vitkit.training.loggers import MetricLogger, make_loggers
from vitkit.training.objective import Objective, objective_name
from vitkit.training.optim import OptimizerFactory, check_optimizer
from vitkit.training.recipe import Recipe
from vitkit.training.recipes import get_recipe
from vitkit.training.results import Result, finish
from vitkit.training.run_dir import check_run_dir, is_restart, lock_run_dir, write_run_info
from vitkit.training.setup import (
    OnStep,
    build_model,
    choose_model,
    make_context,
    make_state,
    open_dataset,
    open_task,
)
from vitkit.training.signals import InterruptHandler
from vitkit.training.trainer import Trainer, preserved_rng


def train(
    recipe: Recipe | str,
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    on_record: OnRecord | None = None,
    *,
    model: ViT | str | None = None,
    data: Dataset | DataSpec | None = None,
    objective: Objective | None = None,
    optimizer: OptimizerFactory | None = None,
    on_step: OnStep | None = None,
    loggers: Sequence[str | MetricLogger] = (),
) -> Result:
    """Train a model by the recipe, into the run folder `out` (runs/DATA by default), and return the result.

    `model` is a name, or a ViT or an instance of a subclass, which is trained in place and has the best weights at the
    end. `data` is a `Dataset`, arrays as `open_data` takes them, or a path. `objective(model, batch)` returns the mean
    loss and a dictionary of metrics, which are logged and evaluated on the validation images too. `optimizer(groups)`
    returns a torch optimizer of parameter groups. `on_step(step, metrics, model)` is called after each step; an error
    in it ends the run. `loggers` are "tensorboard", "wandb", "mlflow" or objects with their methods; an error in one
    does not.

    With `resume`, or if torchrun has restarted the processes of the same job, the run continues from its newest intact
    checkpoint, given the same arguments. `on_record(folder)` is called whenever metrics were recorded; an error in it
    does not stop the run. torch's random state and number of threads are restored at the end.
    """
    started = time.monotonic()
    recipe, given, source = _with_arguments(recipe, model, data, objective, optimizer)
    found_loggers = make_loggers(loggers)
    folder = Path(out) if out else Path("runs") / Path(recipe.data).stem
    world = join(recipe.machine.device)
    with ExitStack() as scope:
        scope.callback(world.leave)
        scope.enter_context(preserved_rng(world.device))
        scope.enter_context(torch_threads(recipe.machine.threads or torch.get_num_threads()))

        resume = resume or world.broadcast_object(is_restart(folder))
        opened = open_dataset(recipe, source)
        recipe, teacher = load_teacher(choose_model(recipe, opened))
        world.on_main(lambda: check_run_dir(folder, recipe, opened, resume))
        init = load_init(recipe)
        init_digest = hash_init(given or init)  # before training changes the weights
        task = world.main_first(lambda: open_task(recipe, opened, given or init, quiet=quiet or not world.is_main))
        vit = build_model(recipe, task, init, given).to(world.device)

        # The folder is created only now, so that a wrong setting leaves nothing behind.
        world.on_main(lambda: scope.enter_context(lock_run_dir(folder)))
        world.on_main(lambda: check_run_dir(folder, recipe, opened, resume))  # another run may have started meanwhile
        world.on_main(lambda: write_run_info(folder, recipe, opened))
        log = RunLogger(folder, quiet, on_record, found_loggers, recipe.to_dict()) if world.is_main else Logger()
        scope.callback(log.close)
        context = make_context(
            recipe, folder, world, log, task, vit, teacher, objective, on_step, optimizer, init=init_digest
        )
        state = make_state(context, vit, resume)

        with InterruptHandler() as interrupts:  # an interrupt before this loses nothing
            trainer = Trainer(context, state, started, interrupts)
            trainer.tune()
            trainer.fit()
            return finish(context, state, trainer.started)


def _with_arguments(
    recipe: Recipe | str,
    model: ViT | str | None,
    data: Dataset | DataSpec | None,
    objective: Objective | None,
    optimizer: OptimizerFactory | None,
) -> tuple[Recipe, ViT | None, Dataset | Arrays | None]:
    """Return the recipe with the names of what was given in Python, the given model, and the given data."""
    recipe = get_recipe(recipe) if isinstance(recipe, str) else recipe
    if isinstance(model, nn.Module):
        if not isinstance(model, ViT):
            raise ConfigError(
                f"model is a {type(model).__name__}: train needs a ViT or a subclass of it; for another module, write "
                "the loop yourself with vitkit.data.make_loader"
            )
        if recipe.init or recipe.config:
            raise ConfigError("a model is given, and the recipe has init or config: build the model with them instead")
        recipe = recipe.replace(model=type(model).__qualname__)
    elif model is not None:
        recipe, model = recipe.replace(model=model), None
    source: Dataset | Arrays | None = None
    if isinstance(data, str | Path):
        recipe = recipe.replace(data=str(data))
    elif data is not None:
        source, recipe = data, recipe.replace(data=data.name if isinstance(data, Dataset) else "arrays")
    if objective is not None:
        if recipe.distill.teacher:
            raise ConfigError("an objective is given, and the recipe has a teacher: load the teacher in your objective")
        recipe = recipe.replace(objective=objective_name(objective))
    elif recipe.objective:
        raise ConfigError(f"the recipe needs the objective {recipe.objective}: call vitkit.train(…, objective=…)")
    if optimizer is not None:
        name = getattr(optimizer, "__qualname__", type(optimizer).__qualname__)
        recipe = recipe.replace(optimizer=dataclasses.replace(recipe.optimizer, name=name))
    check_optimizer(recipe.optimizer, optimizer)
    return recipe, model, source
