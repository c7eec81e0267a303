"""Logits → probabilities, for every engine alike."""

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """In float64, so that every engine's scores are rounded in the same way."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    powers = np.exp(shifted)
    return powers / powers.sum(axis=-1, keepdims=True)
