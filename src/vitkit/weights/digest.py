"""Which weights these are: the SHA-256 of a model's tensors."""

import hashlib

import torch

from vitkit.model import ViT


def hash_weights(model: ViT, without: tuple[str, ...] = ()) -> str:
    """By name, type and shape; without the tensors whose names begin so."""
    total = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not name.startswith(without):
            total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
