"""Save and load predictions, to compare runs sample by sample and to draw reports without the data."""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from vitkit.atomic import write_atomic
from vitkit.errors import DataError
from vitkit.evaluation.metrics import Predictions


def save_predictions(path: Path, predictions: Predictions) -> None:
    """Write logits and labels as tensors, and the names as JSON in the metadata."""
    texts = {"class_names": predictions.class_names, "names": predictions.names, "skipped": predictions.skipped}
    tensors = {"logits": predictions.logits, "labels": predictions.labels}
    write_atomic(path, save(tensors, metadata={key: json.dumps(value) for key, value in texts.items()}))


def load_predictions(path: Path) -> Predictions:
    """Return predictions that `save_predictions` wrote."""
    try:
        with safe_open(path, framework="numpy") as file:
            texts = {key: json.loads(value) for key, value in file.metadata().items()}
            logits, labels = (np.asarray(file.get_tensor(name)) for name in ("logits", "labels"))
        return Predictions(logits, labels, **texts)
    except (OSError, SafetensorError, AttributeError, TypeError, json.JSONDecodeError) as error:
        raise DataError(f"{path}: cannot be read as predictions ({error})") from error
