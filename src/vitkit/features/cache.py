"""Features on disk, by what they are made of: another call with the same weights and images takes them from there.

A file's name is the hash of everything that decides its content: the weights below the classifier, the architecture,
the preprocessing and the images in their order. Labels and file names are not part of it. The file names the hash of
its own tensors; what does not verify is made anew.
"""

import contextlib
import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from vitkit.atomic import write_atomic
from vitkit.data.dataset import Split
from vitkit.data.fingerprint import content_hashes
from vitkit.data.pipeline import CORRUPT_LIMIT, Progress
from vitkit.data.preprocess import Preprocess
from vitkit.errors import WorkError
from vitkit.features.extract import Features, extract
from vitkit.model import ViT
from vitkit.runtime.cache import cache_folder, prune
from vitkit.weights.state_dict import hash_weights

LIMIT = 4 * 2**30  # bytes of features that are kept; the ones longest unused go first
_ABOVE = ("head.", "head_dist.", "pre_logits.")  # what features do not pass through


def cached_features(
    model: ViT,
    split: Split,
    preprocess: Preprocess,
    *,
    batch: int = 64,
    progress: Progress | None = None,
    corrupt_limit: float = CORRUPT_LIMIT,
) -> Features:
    """The features of a split, from the cache or into it."""
    path = cache_folder() / "features" / f"{feature_key(model, split, preprocess)}.safetensors"
    found = _read(path)
    if found and len(found.skipped) <= corrupt_limit * len(split):
        with contextlib.suppress(OSError):
            path.touch()
        return found
    made = extract(model, split, preprocess, batch=batch, progress=progress, corrupt_limit=corrupt_limit)
    with contextlib.suppress(OSError, WorkError):  # a cache that cannot be written is not worth an error
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, made)
        prune(path.parent, keep=path, limit=LIMIT)
    return made


def feature_key(model: ViT, split: Split, preprocess: Preprocess) -> str:
    total = hashlib.sha256(b"vitkit features 1\n")
    config = model.config.replace(num_classes=0, head_hidden=0).to_dict()
    total.update(json.dumps([config, preprocess.to_dict()], sort_keys=True).encode())
    total.update(hash_weights(model, without=_ABOVE).encode())
    total.update((split.hashes if split.hashes is not None else content_hashes(split.images)).tobytes())
    return total.hexdigest()


def _write(path: Path, features: Features) -> None:
    tensors = {"values": features.values, "kept": features.kept}
    texts = {"sha256": _digest(features.values, features.kept), "skipped": json.dumps(list(features.skipped))}
    write_atomic(path, save(tensors, metadata=texts))


def _read(path: Path) -> Features | None:
    """None where there is no such file, or not a whole one."""
    try:
        with safe_open(path, framework="numpy") as file:
            texts = file.metadata() or {}
            values, kept = (np.asarray(file.get_tensor(name)) for name in ("values", "kept"))
    except (OSError, SafetensorError):
        return None
    if texts.get("sha256") != _digest(values, kept):
        return None
    return Features(values, kept, tuple(json.loads(texts["skipped"])))


def _digest(values: np.ndarray, kept: np.ndarray) -> str:
    total = hashlib.sha256(np.ascontiguousarray(values).tobytes())
    total.update(np.ascontiguousarray(kept).tobytes())
    return total.hexdigest()
