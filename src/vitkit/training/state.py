"""What changes during a run. Saved and restored whole: tensors by name, numbers as JSON."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vitkit.model import ViT
from vitkit.training import checkpoint
from vitkit.training import optim as optimizer
from vitkit.training.autotune import Choice
from vitkit.training.budget import Clock

_COUNTS = ("best", "since_best", "validated_at", "bad_steps", "bad_in_a_row")


@dataclass
class State:
    model: ViT
    optimizers: list[torch.optim.Optimizer]
    average: optimizer.Average | None
    clock: Clock
    choice: Choice
    best: dict[str, Any] = field(default_factory=dict)  # the validation that was best so far
    since_best: int = 0  # validations
    validated_at: int = -1  # the step of the last one
    bad_steps: int = 0  # in all
    bad_in_a_row: int = 0

    def tensors(self) -> dict[str, Tensor]:
        named = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self.average:
            named |= {f"average.{k}": v for k, v in self.average.state_dict().items()}
        for i, each in enumerate(self.optimizers):
            named |= checkpoint.pack_optimizer(each, f"optimizer.{i}.")
        return named

    def numbers(self) -> dict[str, Any]:
        counts = {k: getattr(self, k) for k in _COUNTS}
        return {"clock": self.clock.numbers(), "choice": dataclasses.asdict(self.choice), **counts}

    def restore(self, saved: checkpoint.Saved) -> None:
        tensors, numbers = saved.tensors(self._like()), saved.numbers
        self.model.load_state_dict(_under("model.", tensors))
        if self.average:
            self.average.load_state_dict(_under("average.", tensors))
        for i, each in enumerate(self.optimizers):
            checkpoint.unpack_optimizer(each, f"optimizer.{i}.", tensors)
        self.clock, self.choice = Clock(**numbers["clock"]), Choice(**numbers["choice"])
        for key in _COUNTS:
            setattr(self, key, numbers.get(key, getattr(self, key)))

    def _like(self) -> checkpoint.Like:
        """Room for a saved tensor, cut over the processes as the parameter that it belongs to."""
        homes = {f"{kind}.{k}": v for kind in ("model", "average") for k, v in self.model.state_dict().items()}
        for i, each in enumerate(self.optimizers):
            parameters = [p for group in each.param_groups for p in group["params"]]
            homes |= {f"optimizer.{i}.{j}": parameter for j, parameter in enumerate(parameters)}

        def like(name: str, shape: torch.Size) -> Tensor:
            home = homes.get(name, homes.get(name.rpartition(".")[0]))
            return torch.empty(shape) if home is None or home.shape != shape else torch.empty_like(home)

        return like


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
