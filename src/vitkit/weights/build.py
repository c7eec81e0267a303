"""A model out of a config and tensors in our names: all of them, of the right shape, finite."""

from collections.abc import Mapping

import torch
from torch import Tensor

from vitkit.errors import WeightsError
from vitkit.model import ViT, ViTConfig, create_model


def build(config: ViTConfig, tensors: Mapping[str, Tensor], where: object) -> ViT:
    model = create_model(config, device="meta")
    _check(model, tensors, where)
    model.load_state_dict(dict(tensors), strict=True, assign=True)
    return model.requires_grad_().eval()


def _check(model: ViT, tensors: Mapping[str, torch.Tensor], where: object) -> None:
    expected = model.state_dict()
    if missing := sorted(expected.keys() - tensors.keys()):
        raise WeightsError(f"{where} lacks {len(missing)} tensors that the config calls for, the first is {missing[0]}")
    if extra := sorted(tensors.keys() - expected.keys()):
        raise WeightsError(f"{where} holds {len(extra)} tensors that the config has no place for, such as {extra[0]}")
    for key, tensor in tensors.items():
        if tensor.shape != expected[key].shape:
            raise WeightsError(f"{where}: {key} is {tuple(tensor.shape)}, expected {tuple(expected[key].shape)}")
        if not (tensor.sum().isfinite() or tensor.isfinite().all()):  # a finite sum is proof, and cheaper
            raise WeightsError(f"{where}: {key} holds NaN or infinite values")
