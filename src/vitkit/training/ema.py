"""The exponential moving average (EMA) of a model's weights."""

import torch
from torch import Tensor, nn

from vitkit.training.fsdp import local_tensor


class EMA:
    def __init__(self, model: nn.Module) -> None:
        self.names = [name for name, _ in model.named_parameters()]
        self.tensors = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model: nn.Module, decay: float) -> None:
        averages = [local_tensor(t) for t in self.tensors]
        weights = [local_tensor(p.detach()) for p in model.parameters()]
        torch._foreach_lerp_(averages, weights, 1 - decay)

    @torch.no_grad()
    def swap(self, model: nn.Module) -> None:
        """Exchange the averages with the weights of the model. A second call restores both."""
        for average, parameter in zip(self.tensors, model.parameters(), strict=True):
            weights = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(weights)

    def state_dict(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self.tensors, strict=True))

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for name, tensor in zip(self.names, self.tensors, strict=True):
            tensor.copy_(state[name])


def ema_decay(step: int, decay: float) -> float:
    """Return the decay at a step. It is small in the first steps, so that the average forgets the random weights."""
    return min(decay, (1 + step) / (10 + step))
