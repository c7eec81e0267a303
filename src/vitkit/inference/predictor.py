"""`Predictor` maps images to ranked labels. Class names and preprocessing come from the model's own files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vitkit.data.decode import DecodableImage
from vitkit.errors import ConfigError, CorruptImageError
from vitkit.export.metadata import SUFFIXES, find_exported
from vitkit.export.runtimes import ExportedModel, softmax
from vitkit.inference.autotune import choose_engine
from vitkit.inference.engines import Engine, make_engine
from vitkit.inference.image_inputs import as_list
from vitkit.model import ViT
from vitkit.runtime.device import select_device
from vitkit.runtime.threaded_inference import IMAGES_PER_CORE, available_cores
from vitkit.runtime.threads import threaded_map
from vitkit.weights.load import load_model
from vitkit.weights.metadata import require_metadata

DECODE_AHEAD = 4  # batches that are decoded while the model runs
DECODE_THREADS = 4


@dataclass(frozen=True)
class Prediction:
    """A label with its probability, and the index of its class, which tells classes of the same name apart."""

    label: str
    score: float
    index: int


class Predictor:
    """Predicts labels: `Predictor("runs/pets")("cat.jpg")` returns them ranked by probability.

    `source` is a model, anything that `load_model` accepts, or an export (its folder, or its .onnx or .xml file).
    `engine` is eager, compiled, openvino, onnx or auto. Auto chooses by the number of `expected_images`, with a timed
    trial for large jobs; `engine_description` names the engine and the reason. `image_size` replaces the model's own
    size, and `batch_size` is the number of images per forward pass. Threads may share a predictor.
    """

    def __init__(
        self,
        source: str | Path | ViT,
        engine: str = "auto",
        *,
        expected_images: int | None = None,
        batch_size: int | None = None,
        image_size: int | tuple[int, int] | None = None,
        device: str = "auto",
    ) -> None:
        self.model: ViT | None = None
        self.engine: Engine
        self.class_names: Sequence[str]
        exported = None if isinstance(source, ViT) else find_exported(source, image_size)
        if exported is not None:
            kind = SUFFIXES[exported.suffix]
            if engine not in ("auto", kind):
                raise ConfigError(f"{exported} is an export for {kind}: it cannot run with engine {engine!r}")
            self.engine, reason = (runner := ExportedModel(exported)), "the model is an export"
            self.class_names, preprocess = runner.metadata.class_names, runner.metadata.preprocess
        else:
            self.model = source if isinstance(source, ViT) else load_model(source, select_device(device))
            self.model.eval()
            self.class_names, preprocess = require_metadata(self.model, "the model" if self.model is source else source)
        self.preprocess = preprocess if image_size is None else preprocess.replace(size=image_size)
        self.batch_size = batch_size or self._default_batch_size()
        if self.model is not None and engine == "auto":
            choice = choose_engine(self.model, self.preprocess, expected_images, self.batch_size)
            self.engine, reason = choice.engine, choice.reason
        elif self.model is not None:
            self.engine, reason = make_engine(engine, self.model, self.preprocess), "as requested"
        self.engine_description = f"{self.engine.name}: {reason}"

    def __call__(self, images: Any, top: int = 5) -> list[Prediction] | list[list[Prediction]]:
        """Return the `top` predictions for one image, or a list of them for several.

        Images are paths, bytes, Pillow images, arrays or tensors: see `vitkit.inference.image_inputs.as_list`.
        """
        inputs, single = as_list(images)
        results = self._predict(inputs, top)
        return results[0] if single else results

    def predict_many(self, images: Any, top: int = 5) -> list[list[Prediction]]:
        """Return the `top` predictions for each image, also if only one is given."""
        return self._predict(as_list(images)[0], top)

    def predict_files(
        self, paths: Sequence[Path], top: int = 5
    ) -> list[tuple[Path, list[Prediction] | CorruptImageError]]:
        """Return each path with its predictions, or with the error if the file cannot be decoded."""
        return list(zip(paths, self.stream(paths, top), strict=True))

    def stream(
        self, images: Sequence[str | DecodableImage], top: int = 5
    ) -> Iterator[list[Prediction] | CorruptImageError]:
        """Yield predictions or decoding errors in order, as they are computed. Threads decode the next images."""
        ahead = DECODE_AHEAD * self.batch_size
        decoded = threaded_map(self._decode, images, DECODE_THREADS, ahead=ahead)
        while batch := list(islice(decoded, self.batch_size)):
            pixels = [each for each in batch if isinstance(each, np.ndarray)]
            ranked = iter(self.rank(self.predict_probabilities(np.stack(pixels)), top) if pixels else [])
            yield from (each if isinstance(each, CorruptImageError) else next(ranked) for each in batch)

    def predict_probabilities(self, pixels: np.ndarray) -> np.ndarray:
        """Return probabilities (B, K) for pixels (B, H, W, C) uint8, as `preprocess.array` produces them."""
        return softmax(self.engine(pixels))

    def rank(self, probabilities: np.ndarray, top: int = 5) -> list[list[Prediction]]:
        """Return the `top` labels of each row, ranked by probability."""
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
        return [
            [Prediction(self.class_names[k], float(row[k]), int(k)) for k in best]
            for row, best in zip(probabilities, order, strict=True)
        ]

    def warm_up(self, batch_size: int = 1) -> None:
        """Run the engine once on blank images, so that the first prediction does not pay for its preparations."""
        self.engine(np.zeros((batch_size, *self.preprocess.size, self.preprocess.channels), dtype=np.uint8))

    def _default_batch_size(self) -> int:
        """Return a size that occupies the processor, fits its caches and has images for each core."""
        height, width = self.preprocess.size
        on_gpu = self.model is not None and next(self.model.parameters()).device.type != "cpu"
        cores = 1 if self.model is None or on_gpu else available_cores()
        least = IMAGES_PER_CORE * cores if cores > 1 else 1
        return max(least, min(256, (64 if on_gpu else 8) * 224 * 224 // (height * width)))

    def _predict(self, images: Sequence[DecodableImage], top: int) -> list[list[Prediction]]:
        results = []
        for result in self.stream(images, top):
            if isinstance(result, CorruptImageError):
                raise result
            results.append(result)
        return results

    def _decode(self, image: str | DecodableImage) -> np.ndarray | CorruptImageError:
        try:
            return self.preprocess.array(Path(image) if isinstance(image, str) else image)
        except CorruptImageError as error:
            return error
