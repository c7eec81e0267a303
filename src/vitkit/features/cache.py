"""Cache features on disk by content: the same weights and images are read back instead of extracted again.

A file's name is the hash of everything that its content depends on: the weights below the classifier, the
architecture, the preprocessing, the images in their order, and what changes the rounding (threads, for example). Labels
and file names are not part of it. The file stores the hash of its own tensors. If that does not match, the features are
extracted again.
"""

import contextlib
import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from vitkit.atomic import write_atomic
from vitkit.data.dataset import Split
from vitkit.data.decode_pipeline import CORRUPT_LIMIT, Progress
from vitkit.data.preprocess import Preprocess
from vitkit.errors import WorkError
from vitkit.features.extract import HEAD_PREFIXES, Features, extract_features
from vitkit.model import ViT
from vitkit.runtime.cache_dir import cache_folder, prune
from vitkit.runtime.threaded_inference import available_cores
from vitkit.weights.state_dict import hash_weights

MAX_BYTES = 4 * 2**30  # size of the cache; the least recently used files are removed first


def cached_features(
    model: ViT,
    split: Split,
    preprocess: Preprocess,
    *,
    batch_size: int = 64,
    progress: Progress | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Features:
    """Return the features of a split from the cache. If the cache does not have them, extract and store them."""
    path = cache_folder() / "features" / f"{feature_key(model, split, preprocess, batch_size)}.safetensors"
    cached = _read(path)
    if cached and len(cached.skipped) <= corrupt_limit * len(split):
        with contextlib.suppress(OSError):
            path.touch()
        return cached
    features = extract_features(
        model, split, preprocess, batch_size=batch_size, progress=progress, corrupt_limit=corrupt_limit
    )
    with contextlib.suppress(OSError, WorkError):  # a read-only cache is no reason to fail
        path.parent.mkdir(parents=True, exist_ok=True)
        tensors = {"values": features.values, "kept": features.indices}
        texts = {"sha256": _digest(features.values, features.indices), "skipped": json.dumps(list(features.skipped))}
        write_atomic(path, save(tensors, metadata=texts))
        prune(path.parent, keep=path, limit=MAX_BYTES)
    return features


def feature_key(model: ViT, split: Split, preprocess: Preprocess, batch_size: int) -> str:
    """Return the SHA-256 of everything that the features depend on."""
    digest = hashlib.sha256(b"vitkit features 1\n")
    config = model.config.replace(num_classes=0, head_hidden=0).to_dict()
    device, capability = str(next(model.parameters()).device), torch.backends.cpu.get_cpu_capability()
    rounding = [torch.__version__, device, capability, available_cores(), batch_size]
    digest.update(json.dumps([config, preprocess.to_dict(), rounding], sort_keys=True).encode())
    digest.update(hash_weights(model, without=HEAD_PREFIXES).encode())
    digest.update(split.content_hashes().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> Features | None:
    """Return the stored features, or None if the file is missing or damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            texts = file.metadata() or {}
            values, indices = (np.asarray(file.get_tensor(name)) for name in ("values", "kept"))
    except (OSError, SafetensorError):
        return None
    if texts.get("sha256") != _digest(values, indices):
        return None
    return Features(values, indices, tuple(json.loads(texts["skipped"])))


def _digest(values: np.ndarray, indices: np.ndarray) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes())
    digest.update(np.ascontiguousarray(indices).tobytes())
    return digest.hexdigest()
