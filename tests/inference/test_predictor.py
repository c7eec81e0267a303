import io
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.inference.conftest import small_model
from vitkit.errors import CorruptImageError, DataError, InputError, UnknownNameError, WeightsError
from vitkit.inference import Predictor, find_images
from vitkit.model import ViT


@pytest.fixture
def model() -> ViT:
    return small_model()


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_labels_come_best_first_with_their_softmax_scores(model: ViT, picture: Path) -> None:
    answer = Predictor(model)(picture)
    with torch.inference_mode():
        scores = model(model.info.preprocess.normalize(model.info.preprocess(picture)[None])).softmax(-1)[0]
    assert [p.score for p in answer] == pytest.approx(sorted(scores.tolist(), reverse=True), abs=1e-6)
    assert answer[0].label == model.info.class_names[int(scores.argmax())]
    assert len(Predictor(model)(picture, top=2)) == 2


def test_one_picture_gives_the_same_answer_however_it_is_handed_over(model: ViT, picture: Path) -> None:
    predictor = Predictor(model)
    image = Image.open(picture)
    stream = io.BytesIO()
    image.save(stream, format="PNG")
    array = np.asarray(image)
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    ways = (picture, str(picture), stream.getvalue(), bytearray(stream.getvalue()), image, array, tensor, tensor / 255)
    answers = [predictor(way) for way in ways]
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("many", [np.zeros((3, 20, 30, 3), np.uint8), torch.zeros(3, 3, 20, 30, dtype=torch.uint8)])
def test_a_batch_is_many(model: ViT, many: object) -> None:
    answers = Predictor(model)(many)
    assert len(answers) == 3
    assert [p.score for p in answers[1]] == pytest.approx([p.score for p in Predictor(model)(many[0])], abs=1e-6)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (3.5, "not float"),
        (torch.full((3, 8, 8), 2.0), "outside of 0…1"),
        (torch.full((3, 8, 8), float("nan")), "outside of 0…1"),
        (torch.zeros(3, 8, 8, dtype=torch.int64), "expected uint8"),
        (torch.zeros(8), "is no image"),
    ],
)
def test_what_is_no_image_is_said_in_one_line(model: ViT, image: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Predictor(model)(image)


def test_many_pictures_give_many_answers_in_order(model: ViT, picture: Path) -> None:
    predictor = Predictor(model)
    white = np.full((8, 8, 3), 255, dtype=np.uint8)
    many = predictor.many([picture, white, picture], batch=2)
    assert [p.label for p in many[0]] == [p.label for p in many[2]]
    assert [p.score for p in many[0]] == pytest.approx([p.score for p in many[2]], abs=1e-6)
    assert [p.score for p in many[1]] == pytest.approx([p.score for p in predictor(white)], abs=1e-6)
    assert predictor.many([]) == []


def test_a_bad_file_does_not_stop_the_others(model: ViT, picture: Path) -> None:
    bad = picture.with_name("b.png")
    bad.write_text("no image")
    (first, good), (second, wrong), (_, last) = Predictor(model).files([picture, bad, picture], top=1, batch=2)
    assert (first, second) == (picture, bad)
    assert isinstance(good, list)
    assert isinstance(wrong, CorruptImageError)
    assert isinstance(last, list)
    assert last[0].label == good[0].label


def test_answers_come_while_later_files_are_unread(model: ViT, picture: Path) -> None:
    """A folder of a million images must not be decoded before the first answer."""
    read: list[int] = []

    class Watched(Predictor):
        def _try(self, picture: object) -> np.ndarray | CorruptImageError:
            read.append(1)
            return super()._try(picture)

    answers = Watched(model).stream([picture] * 100, batch=2)
    next(answers)
    assert len(read) < 50


@pytest.mark.parametrize("fixture", ["folder", "onnx_folder", "openvino_folder"])
def test_threads_share_a_predictor(fixture: str, request: pytest.FixtureRequest) -> None:
    predictor = Predictor(request.getfixturevalue(fixture))
    draws = np.random.default_rng(0)
    batches = [draws.integers(0, 256, (1 + i % 4, 16, 16, 3), dtype=np.uint8) for i in range(48)]
    alone = [predictor.scores(batch) for batch in batches]
    start = threading.Barrier(8)

    def work(worker: int) -> list[np.ndarray]:
        start.wait()
        return [predictor.scores(batch) for batch in batches[worker::8]]

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(work, range(8)))
    for worker, found in enumerate(together):
        for ours, expected in zip(found, alone[worker::8], strict=True):
            np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-6)


def test_another_size_is_asked_for_by_number(model: ViT, picture: Path) -> None:
    predictor = Predictor(model, size=24)
    with torch.inference_mode():
        preprocess = model.info.preprocess.replace(size=24)
        scores = model(preprocess.normalize(preprocess(picture)[None])).softmax(-1)[0]
    assert predictor(picture)[0].score == pytest.approx(float(scores.max()), abs=1e-6)


def test_warming_up_changes_no_answer(model: ViT, picture: Path) -> None:
    predictor = Predictor(model)
    before = predictor(picture)
    predictor.warm_up(batch=3)
    assert predictor(picture) == before


def test_a_model_without_class_names_cannot_answer(model: ViT) -> None:
    model.reset_classifier(5)
    with pytest.raises(WeightsError, match="no class names"):
        Predictor(model)


def test_an_unknown_engine_is_named(model: ViT) -> None:
    with pytest.raises(UnknownNameError, match="unknown engine 'onxx'; did you mean 'onnx'"):
        Predictor(model, "onxx")


def test_images_are_found_by_name_folder_and_pattern(picture: Path) -> None:
    folder = picture.parent
    (folder / "notes.txt").write_text("")
    (folder / "deeper.png").mkdir()
    other = folder / "deeper.png" / "c.JPG"
    other.write_bytes(b"")
    for hidden in (folder / "._a.png", folder / ".cache" / "b.png"):  # as macOS and file managers leave them
        hidden.parent.mkdir(exist_ok=True)
        hidden.write_bytes(b"")
    assert find_images([str(folder)]) == [picture, other]
    assert find_images([str(folder / "*.png"), str(other)]) == [picture, other]
    assert find_images(["-"]) == [Path("-")]
    with pytest.raises(DataError, match="no such file or folder"):
        find_images([str(folder / "*.bmp")])
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="no images in"):
        find_images([str(folder / "empty")])
