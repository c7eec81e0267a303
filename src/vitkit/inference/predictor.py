"""`Predictor`: a model that answers. Class names and preprocessing come from its folder or file, from nowhere else."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitkit.data.pipeline import threaded_map
from vitkit.errors import ConfigError, CorruptImageError
from vitkit.export.metadata import SUFFIXES, find_exported
from vitkit.inference.image_inputs import DecodableImage, as_list
from vitkit.inference.scores import softmax

if TYPE_CHECKING:
    from vitkit.model import ViT

AHEAD = 4  # batches that are decoded while the model works on another
THREADS = 4  # that decode them


@dataclass(frozen=True)
class Prediction:
    label: str
    score: float


class Predictor:
    """`Predictor("runs/pets")("cat.jpg")` → the labels, best first. Many images give a list of such answers.

    `model` is whatever `load_model` takes, or an export: a folder, or its .onnx or .xml file. `engine` is eager,
    compiled, openvino, onnx, or auto: chosen by the number of `images` to come and by a trial, and `chosen` says what
    and why. Threads may share one.
    """

    def __init__(
        self,
        model: "str | Path | ViT",
        engine: str = "auto",
        *,
        images: int | None = None,
        size: int | tuple[int, int] | None = None,
        device: str = "auto",
    ) -> None:
        self.model: ViT | None = None
        exported = find_exported(model, size) if isinstance(model, str | Path) else None
        if exported is not None:
            self._open_exported(exported, engine, size)
        else:
            self._open_model(model, engine, images, size, device)

    def _open_exported(self, path: Path, engine: str, size: int | tuple[int, int] | None) -> None:
        from vitkit.inference.engines import Engine, Exported

        kind = SUFFIXES[path.suffix]
        if engine not in ("auto", kind):
            raise ConfigError(f"{path} is an export for {kind}: it cannot run as {engine!r}")
        made = Exported(path)
        self.engine: Engine = made
        self.chosen = f"{made.name}: the model is an export"
        self.class_names: Sequence[str] = made.info.class_names
        self.preprocess = made.info.preprocess if size is None else made.info.preprocess.replace(size=size)

    def _open_model(self, model: "str | Path | ViT", engine: str, images: int | None, size: Any, device: str) -> None:
        from vitkit.inference.autotune import choose
        from vitkit.inference.engines import make_engine
        from vitkit.model import ViT
        from vitkit.runtime.device import select_device
        from vitkit.weights.load import load_model
        from vitkit.weights.metadata import require_metadata

        given = isinstance(model, ViT)
        self.model = vit = (model if isinstance(model, ViT) else load_model(model, select_device(device))).eval()
        self.class_names, preprocess = require_metadata(vit, "the model" if given else model)
        self.preprocess = preprocess if size is None else preprocess.replace(size=size)
        if engine == "auto":
            choice = choose(vit, self.preprocess, images, self.batch_size())
            self.engine, why = choice.engine, choice.why
        else:
            self.engine, why = make_engine(engine, vit, self.preprocess), "as asked"
        self.chosen = f"{self.engine.name}: {why}"

    def __call__(self, images: Any, top: int = 5) -> list[Prediction] | list[list[Prediction]]:
        """Paths, bytes, Pillow images, arrays or tensors, one or many: see `image_inputs.as_list`."""
        pictures, single = as_list(images)
        answers = self._answers(pictures, top)
        return answers[0] if single else answers

    def many(self, images: Any, top: int = 5, batch: int | None = None) -> list[list[Prediction]]:
        return self._answers(as_list(images)[0], top, batch)

    def files(
        self, paths: Sequence[Path], top: int = 5, batch: int | None = None
    ) -> list[tuple[Path, list[Prediction] | CorruptImageError]]:
        """An answer per file, or what is wrong with it: one bad file does not stop the others."""
        return list(zip(paths, self.stream(paths, top, batch), strict=True))

    def stream(
        self, pictures: Sequence[str | DecodableImage], top: int = 5, batch: int | None = None
    ) -> Iterator[list[Prediction] | CorruptImageError]:
        """The same as they come, in order. Threads decode the next images while the model works."""
        size = batch or self.batch_size()
        decoded = iter(threaded_map(lambda i: self._try(pictures[i]), len(pictures), THREADS, ahead=AHEAD * size))
        while part := list(islice(decoded, size)):
            good = [found for found in part if isinstance(found, np.ndarray)]
            answers = iter(self.rank(self.scores(np.stack(good)), top) if good else [])
            yield from (found if isinstance(found, CorruptImageError) else next(answers) for found in part)

    def scores(self, pixels: np.ndarray) -> np.ndarray:
        """(B, H, W, C) uint8, as `preprocess.array` makes them → (B, K) probabilities."""
        return softmax(self.engine(pixels))

    def rank(self, scores: np.ndarray, top: int = 5) -> list[list[Prediction]]:
        order = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        return [
            [Prediction(self.class_names[k], float(row[k])) for k in best]
            for row, best in zip(scores, order, strict=True)
        ]

    def warm_up(self, batch: int = 1) -> None:
        """Run once on blank images: what an engine prepares on its first call is then done."""
        self.engine(np.zeros((batch, *self.preprocess.size, self.preprocess.channels), dtype=np.uint8))

    def batch_size(self) -> int:
        """Enough pixels at a time to keep a processor busy, few enough to stay in its caches; images for every core."""
        height, width = self.preprocess.size
        on_gpu = self.model is not None and next(self.model.parameters()).device.type != "cpu"
        each = 1 if self.model is None or on_gpu else _images_for_all_cores()
        return max(each, min(256, (64 if on_gpu else 8) * 224 * 224 // (height * width)))

    def _answers(self, images: Sequence[DecodableImage], top: int, batch: int | None = None) -> list[list[Prediction]]:
        answers = []
        for found in self.stream(images, top, batch):
            if isinstance(found, CorruptImageError):
                raise found
            answers.append(found)
        return answers

    def _try(self, picture: str | DecodableImage) -> np.ndarray | CorruptImageError:
        try:
            return self.preprocess.array(Path(picture) if isinstance(picture, str) else picture)
        except CorruptImageError as error:
            return error


def _images_for_all_cores() -> int:
    import torch

    from vitkit.runtime.data_parallel import IMAGES_PER_CORE

    return IMAGES_PER_CORE * torch.get_num_threads() if torch.get_num_threads() > 1 else 1
