import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitkit.data.preprocess import Preprocess
from vitkit.errors import CorruptImageError, DataError, WeightsError
from vitkit.infer import Predictor, find_images
from vitkit.model import ViT, create_model
from vitkit.weights.folder import ModelInfo

SMALL = dict(width=16, depth=2, heads=2, head_width=8, mlp_width=32, image_size=8, patch_size=4, num_classes=3)


@pytest.fixture
def model() -> ViT:
    vit = create_model(SMALL, seed=0)
    vit.info = ModelInfo(class_names=("cat", "dog", "emu"), preprocess=Preprocess(size=(8, 8)))
    return vit


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_scores_are_the_softmax_of_the_models_own_logits(model: ViT, picture: Path) -> None:
    answer = Predictor(model)(picture, top=3)
    images = model.info.preprocess.normalize(model.info.preprocess.batch([picture]))
    with torch.no_grad():
        expected = model(images).softmax(dim=-1)[0]
    assert [p.score for p in answer] == sorted((p.score for p in answer), reverse=True)
    for p in answer:
        assert p.score == pytest.approx(expected[model.info.class_names.index(p.label)].item(), abs=1e-6)


def test_a_picture_is_the_same_however_it_is_handed_over(model: ViT, picture: Path) -> None:
    predictor = Predictor(model)
    image = Image.open(picture)
    stream = io.BytesIO()
    image.save(stream, format="PNG")
    answers = [predictor(x) for x in (picture, str(picture), stream.getvalue(), image, np.asarray(image))]
    assert all(a == answers[0] for a in answers)


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
    (first, good), (second, wrong) = Predictor(model).files([picture, bad], top=1)
    assert (first, second) == (picture, bad)
    assert isinstance(good, list)
    assert isinstance(wrong, CorruptImageError)


def test_a_model_without_class_names_cannot_answer(model: ViT) -> None:
    model.reset_head(5)
    with pytest.raises(WeightsError, match="no class names"):
        Predictor(model)


def test_images_are_found_by_name_folder_and_pattern(picture: Path) -> None:
    folder = picture.parent
    (folder / "notes.txt").write_text("")
    (folder / "deeper").mkdir()
    other = folder / "deeper" / "c.JPG"
    other.write_bytes(b"")
    assert find_images([str(folder)]) == [picture, other]
    assert find_images([str(folder / "*.png"), str(other)]) == [picture, other]
    with pytest.raises(DataError, match="no such file or folder"):
        find_images([str(folder / "*.bmp")])
    (folder / "empty").mkdir()
    with pytest.raises(DataError, match="no images in"):
        find_images([str(folder / "empty")])
