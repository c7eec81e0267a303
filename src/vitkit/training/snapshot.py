"""The model of a run that has not come to its end, or of one of its states: what `vitkit convert` makes a folder of."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from vitkit.errors import WorkError
from vitkit.model import create_model
from vitkit.training import checkpoint
from vitkit.weights.model_dir import CONFIG, find_model_dir, read_config_json, save_model


@contextmanager
def as_folder(source: str) -> Iterator[str]:
    """A model folder for as long as it is used; whatever is no unfinished run and no state of one is left as it is.

    Of a run: the weights of its best validation so far, as the run itself would choose. Of a state,
    `RUN/checkpoints/step-00001234` with or without a suffix: its moving average where it keeps one, else its weights.
    """
    weights, states = _find(Path(source))
    if weights is None:
        yield source
        return
    config, info, _ = read_config_json(states / CONFIG)
    model = create_model(config, device="meta")
    model.load_state_dict(weights, assign=True)
    with tempfile.TemporaryDirectory() as folder:
        yield str(save_model(model, folder, info))


def _find(source: Path) -> tuple[dict[str, Tensor] | None, Path]:
    states = source / "checkpoints"
    if (states / CONFIG).is_file() and find_model_dir(source) is None:
        saved = checkpoint.find_newest(states)
        if saved is None:
            raise WorkError(f"{source} has no state yet: let it train for a while")
        best = saved.numbers["best"]
        return checkpoint.read_best(states, best["step"], best["sha256"]) if best else _weights(saved), states
    if source.name.startswith("step-") and (source.parent / CONFIG).is_file():
        saved = checkpoint.verified(source.with_suffix(".json"))
        if saved is None:
            raise WorkError(f"{source} is not the state that its manifest names: damaged, or half written")
        return _weights(saved), source.parent
    return None, states


def _weights(saved: checkpoint.Saved) -> dict[str, Tensor]:
    tensors = saved.tensors(checkpoint.whole_room)
    kind = "average." if any(name.startswith("average.") for name in tensors) else "model."
    return {name.removeprefix(kind): tensor for name, tensor in tensors.items() if name.startswith(kind)}
