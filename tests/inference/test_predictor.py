import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.inference.conftest import small_model
from vitkit.errors import CorruptImageError, UnknownNameError, WeightsError
from vitkit.inference import Predictor
from vitkit.model import ViT


@pytest.fixture
def model() -> ViT:
    return small_model()


@pytest.fixture
def image_file(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_labels_are_ranked_with_their_softmax_scores(model: ViT, image_file: Path) -> None:
    predictions = Predictor(model)(image_file)
    with torch.inference_mode():
        scores = model(model.info.preprocess.normalize(model.info.preprocess(image_file)[None])).softmax(-1)[0]
    assert [p.score for p in predictions] == pytest.approx(sorted(scores.tolist(), reverse=True), abs=1e-6)
    assert predictions[0].label == model.info.class_names[int(scores.argmax())]
    assert len(Predictor(model)(image_file, top=2)) == 2


def test_an_image_gives_the_same_predictions_in_every_input_type(model: ViT, image_file: Path) -> None:
    predictor = Predictor(model)
    image = Image.open(image_file)
    stream = io.BytesIO()
    image.save(stream, format="PNG")
    array = np.asarray(image)
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    ways = (
        image_file,
        str(image_file),
        stream.getvalue(),
        bytearray(stream.getvalue()),
        image,
        array,
        tensor,
        tensor / 255,
    )
    results = [predictor(way) for way in ways]
    assert all(each == results[0] for each in results)


@pytest.mark.parametrize("many", [np.zeros((3, 20, 30, 3), np.uint8), torch.zeros(3, 3, 20, 30, dtype=torch.uint8)])
def test_a_batch_gives_a_list_of_predictions(model: ViT, many: object) -> None:
    results = Predictor(model)(many)
    assert len(results) == 3
    assert [p.score for p in results[1]] == pytest.approx([p.score for p in Predictor(model)(many[0])], abs=1e-6)


def test_several_images_give_predictions_in_order(model: ViT, image_file: Path) -> None:
    predictor = Predictor(model, batch_size=2)
    white = np.full((8, 8, 3), 255, dtype=np.uint8)
    many = predictor.predict_many([image_file, white, image_file])
    assert [p.label for p in many[0]] == [p.label for p in many[2]]
    assert [p.score for p in many[0]] == pytest.approx([p.score for p in many[2]], abs=1e-6)
    assert [p.score for p in many[1]] == pytest.approx([p.score for p in predictor(white)], abs=1e-6)
    assert predictor.predict_many([]) == []


def test_a_corrupt_file_does_not_stop_the_others(model: ViT, image_file: Path) -> None:
    bad = image_file.with_name("b.png")
    bad.write_text("no image", encoding="utf-8")
    found = Predictor(model, batch_size=2).predict_files([image_file, bad, image_file], top=1)
    (first, good), (second, wrong), (_, last) = found
    assert (first, second) == (image_file, bad)
    assert isinstance(good, list)
    assert isinstance(wrong, CorruptImageError)
    assert isinstance(last, list)
    assert last[0].label == good[0].label


def test_predictions_are_streamed_before_later_files_are_read(model: ViT, image_file: Path) -> None:
    """A folder of a million images must not be decoded before the first prediction."""
    read: list[int] = []

    class Recorder(Predictor):
        def _decode(self, image: object) -> np.ndarray | CorruptImageError:
            read.append(1)
            return super()._decode(image)

    results = Recorder(model, batch_size=2).stream([image_file] * 100)
    next(results)
    assert len(read) < 50


@pytest.mark.parametrize("fixture", ["folder", "onnx_folder", "openvino_folder"])
def test_threads_may_share_a_predictor(fixture: str, request: pytest.FixtureRequest) -> None:
    predictor = Predictor(request.getfixturevalue(fixture))
    draws = np.random.default_rng(0)
    batches = [draws.integers(0, 256, (1 + i % 4, 16, 16, 3), dtype=np.uint8) for i in range(48)]
    alone = [predictor.predict_probabilities(batch) for batch in batches]
    start = threading.Barrier(8)

    def work(worker: int) -> list[np.ndarray]:
        start.wait()
        return [predictor.predict_probabilities(batch) for batch in batches[worker::8]]

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(work, range(8)))
    for worker, found in enumerate(together):
        for ours, expected in zip(found, alone[worker::8], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)


def test_the_image_size_can_be_changed(model: ViT, image_file: Path) -> None:
    predictor = Predictor(model, image_size=24)
    with torch.inference_mode():
        preprocess = model.info.preprocess.replace(size=24)
        scores = model(preprocess.normalize(preprocess(image_file)[None])).softmax(-1)[0]
    assert predictor(image_file)[0].score == pytest.approx(float(scores.max()), abs=1e-6)


def test_warming_up_changes_no_prediction(model: ViT, image_file: Path) -> None:
    predictor = Predictor(model)
    before = predictor(image_file)
    predictor.warm_up(batch_size=3)
    assert predictor(image_file) == before


def test_a_model_without_class_names_is_refused(model: ViT) -> None:
    model.reset_classifier(5)
    with pytest.raises(WeightsError, match="no class names"):
        Predictor(model)


def test_an_unknown_engine_is_an_error_that_suggests_a_name(model: ViT) -> None:
    with pytest.raises(UnknownNameError, match="unknown engine 'onxx'; did you mean 'onnx'"):
        Predictor(model, "onxx")
