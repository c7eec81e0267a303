"""`train(recipe)`: a training run from start to end.

set up    data, model, run folder, optimizers; or the newest checkpoint (`setup.py`)
tune      precision and compilation, by the hardware (`autotune.py`); the speed, for a budget of minutes
fit       step by step, with validations and checkpoints (`trainer.py`)
finish    evaluate the best weights and write the model folder (`results.py`)
"""

import time
from contextlib import ExitStack
from pathlib import Path

import torch

from vitkit.runtime.threaded_inference import torch_threads
from vitkit.training.distillation import load_teacher
from vitkit.training.distributed import join
from vitkit.training.init_from import hash_init, load_init
from vitkit.training.log import Logger, OnRecord, RunLogger
from vitkit.training.recipe import Recipe
from vitkit.training.results import Result, finish
from vitkit.training.run_dir import check_run_dir, is_restart, lock_run_dir, write_run_info
from vitkit.training.setup import build_model, choose_model, make_context, make_state, open_dataset, open_task
from vitkit.training.signals import InterruptHandler
from vitkit.training.trainer import Trainer, preserved_rng


def train(
    recipe: Recipe,
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
    on_record: OnRecord | None = None,
) -> Result:
    """Train a model by the recipe, into the run folder `out` (runs/DATA by default), and return the result.

    With `resume`, or if torchrun has restarted the processes of the same job, the run continues from its newest intact
    checkpoint. `on_record(folder)` is called whenever metrics were recorded; an error in it does not stop the run.
    torch's random state and number of threads are restored at the end.
    """
    started = time.monotonic()
    folder = Path(out) if out else Path("runs") / Path(recipe.data).stem
    world = join(recipe.machine.device)
    with ExitStack() as scope:
        scope.callback(world.leave)
        scope.enter_context(preserved_rng(world.device))
        scope.enter_context(torch_threads(recipe.machine.threads or torch.get_num_threads()))

        resume = resume or world.broadcast_object(is_restart(folder))
        data = open_dataset(recipe)
        recipe, teacher = load_teacher(choose_model(recipe, data))
        world.on_main(lambda: check_run_dir(folder, recipe, data, resume))
        init = load_init(recipe)
        init_digest = hash_init(init)  # before training changes the weights
        task = world.main_first(lambda: open_task(recipe, data, init, quiet=quiet or not world.is_main))
        model = build_model(recipe, task, init).to(world.device)

        # The folder is created only now, so that a wrong setting leaves nothing behind.
        world.on_main(lambda: scope.enter_context(lock_run_dir(folder)))
        world.on_main(lambda: check_run_dir(folder, recipe, data, resume))  # another run may have started meanwhile
        world.on_main(lambda: write_run_info(folder, recipe, data))
        log = RunLogger(folder, quiet, on_record) if world.is_main else Logger()
        scope.callback(log.close)
        context = make_context(recipe, folder, world, log, task, model, teacher, init_digest)
        state = make_state(context, model, resume)

        with InterruptHandler() as interrupts:  # an interrupt before this loses nothing
            trainer = Trainer(context, state, started, interrupts)
            trainer.tune()
            trainer.fit()
            return finish(context, state, trainer.started)
