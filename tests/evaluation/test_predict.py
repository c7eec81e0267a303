import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from vitkit.data.dataset import ArrayImages, Dataset, ImageSource, Split
from vitkit.data.preprocess import Preprocess
from vitkit.errors import DataError, InputError, UnknownNameError, WeightsError
from vitkit.evaluation import evaluate, predict_logits, predict_split, resolution_sweep
from vitkit.evaluation.metrics import wilson_interval
from vitkit.model import ModelInfo, ViT, create_model
from vitkit.weights.model_dir import save_model

from .conftest import DIGITS, Digits

GREY = Preprocess(size=(8, 8), channels=1, fit="squash", crop_fraction=1.0, mean=(0.0,), std=(1.0,))


class Files(ImageSource):
    """Encoded images in memory, like those of a folder or a parquet file."""

    def __init__(self, contents: list[bytes]) -> None:
        self.contents = contents

    def __len__(self) -> int:
        return len(self.contents)

    def __getitem__(self, index: int, /) -> bytes:
        return self.contents[index]

    def name(self, index: int, /) -> str:
        return f"{index}.png"


@pytest.fixture
def split(digits: Digits) -> Split:
    return Split(ArrayImages(digits.pixels, "digits"), digits.labels)


@pytest.fixture
def linear(digits: Digits) -> nn.Module:
    """scikit-learn's classifier as a module, whose accuracy is known."""
    layer = nn.Linear(64, 10)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(digits.classifier.coef_))
        layer.bias.copy_(torch.from_numpy(digits.classifier.intercept_))
    return nn.Sequential(nn.Flatten(), layer)


def vit(**changes) -> nn.Module:
    small = dict(image_size=8, patch_size=4, in_channels=1, width=16, depth=2, heads=2, head_width=8, mlp_width=32)
    return create_model({**small, "num_classes": 10, **changes}, seed=0)


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("batch_size", [1, 64, 5000])
def test_accuracy_and_loss_equal_those_of_sklearn(
    digits: Digits, split: Split, linear: nn.Module, batch_size: int
) -> None:
    e = evaluate(linear, split, GREY, DIGITS, batch_size=batch_size)
    flat = digits.pixels.reshape(len(digits.pixels), -1) / 255
    assert e.top1 == digits.classifier.score(flat, digits.labels)
    assert e.nll == pytest.approx(-np.log(digits.probabilities[np.arange(e.n), digits.labels]).mean(), rel=1e-4)
    worst = e.mistakes[0]
    assert worst.path == f"digits[{worst.index}]"
    assert worst.label == DIGITS[digits.labels[worst.index]]
    assert worst.score == pytest.approx(digits.probabilities[worst.index].max(), rel=1e-4)


def test_encoded_images_give_the_logits_of_their_arrays(digits: Digits, split: Split, linear: nn.Module) -> None:
    files = Split(Files([png(p) for p in digits.pixels[:50]]), digits.labels[:50])
    a = predict_split(linear, files, GREY, DIGITS)
    b = predict_split(linear, split.subset(np.arange(50)), GREY, DIGITS)
    np.testing.assert_array_equal(a.logits, b.logits)
    assert (a.names[7], b.names[7]) == ("7.png", "digits[7]")


def test_dropout_and_stochastic_depth_are_off_during_evaluation(split: Split) -> None:
    model = vit(dropout=0.5, drop_path=0.5).train()
    first = predict_split(model, split, GREY, DIGITS)
    np.testing.assert_array_equal(first.logits, predict_split(model, split, GREY, DIGITS).logits)
    assert first.logits.dtype == np.float32
    assert first.labels.dtype == np.int64


def test_every_module_has_its_mode_again_even_after_an_error(split: Split) -> None:
    model = vit().train()
    model.blocks[0].eval()
    before = [module.training for module in model.modules()]
    predict_split(model, split, GREY, DIGITS)
    assert [module.training for module in model.modules()] == before
    with pytest.raises(InputError, match="channels"):
        predict_split(model, split, Preprocess(size=(8, 8), channels=3), DIGITS)
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize("position", ["learned", "sincos", "rotary"])
def test_a_model_can_be_trained_after_its_evaluation(split: Split, position: str) -> None:
    model = vit(position=position)
    predict_split(model, split.subset(np.arange(4)), GREY, DIGITS, image_size=16)
    model(torch.randn(2, 1, 16, 16)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_bfloat16_model_gives_float32_logits(split: Split) -> None:
    some, model = split.subset(np.arange(20)), vit()
    exact = predict_split(model, some, GREY, DIGITS).logits
    rounded = predict_split(model.bfloat16(), some, GREY, DIGITS).logits
    assert rounded.dtype == np.float32
    np.testing.assert_allclose(rounded, exact, atol=0.05)


def test_a_model_without_weights_runs() -> None:
    logits, labels = predict_logits(nn.Flatten(), [(torch.eye(3)[:, :, None], torch.tensor([0, 1, 2]))])
    np.testing.assert_array_equal(logits, np.eye(3))
    np.testing.assert_array_equal(labels, [0, 1, 2])


def test_image_size_changes_the_input_of_the_model(split: Split) -> None:
    seen: list[tuple[int, ...]] = []

    class Recorder(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(tuple(images.shape))
            return images.new_zeros(len(images), 10)

    some = split.subset(np.arange(5))
    for size in (None, 16, (8, 24)):
        evaluate(Recorder(), some, GREY, DIGITS, image_size=size, batch_size=3)
    assert seen == [(n, 1, *size) for size in ((8, 8), (16, 16), (8, 24)) for n in (3, 2)]


def test_the_sweep_equals_evaluate_at_each_size(split: Split) -> None:
    model = vit()
    rows = resolution_sweep(model, split, GREY, [8, 16], batch_size=300)
    assert [row.size for row in rows] == [8, 16]
    for row in rows:
        e = evaluate(model, split, GREY, DIGITS, image_size=row.size)
        assert (row.top1, row.interval) == (e.top1, e.top1_interval)
        assert row.interval == wilson_interval(round(row.top1 * 899), 899)
        assert row.images_per_s > 0


def test_the_sweep_skips_corrupt_images(digits: Digits, linear: nn.Module) -> None:
    contents = [png(p) for p in digits.pixels[:200]]
    contents[0] = contents[1] = b"no image"
    files = Split(Files(contents), digits.labels[:200])
    (row,) = resolution_sweep(linear, files, GREY, [8], batch_size=20)
    assert row.top1 == evaluate(linear, files, GREY, DIGITS).top1


def test_progress_is_reported_after_every_batch(split: Split, linear: nn.Module) -> None:
    reported: list[tuple[int, int]] = []
    predict_split(
        linear, split, GREY, DIGITS, batch_size=400, progress=lambda done, total: reported.append((done, total))
    )
    assert reported == [(400, 899), (800, 899), (899, 899)]


@pytest.mark.parametrize("batch_size", [1, 64])
def test_a_corrupt_image_is_skipped_and_named(digits: Digits, linear: nn.Module, batch_size: int) -> None:
    contents = [png(p) for p in digits.pixels[:200]]
    contents[17], contents[90] = contents[17][:60], b"no image"
    e = evaluate(linear, Split(Files(contents), digits.labels[:200]), GREY, DIGITS, batch_size=batch_size)
    assert e.n == 198
    assert [line.split(":")[0] for line in e.to_dict()["skipped"]] == ["17.png", "90.png"]
    assert [n for n in ("16.png", "17.png", "18.png", "90.png") if n in e.predictions.names] == ["16.png", "18.png"]
    kept = np.delete(np.arange(200), [17, 90])
    np.testing.assert_array_equal(e.predictions.labels, digits.labels[kept])


def test_more_than_one_percent_of_corrupt_images_is_an_error(digits: Digits, linear: nn.Module) -> None:
    contents = [png(p) for p in digits.pixels[:199]]
    contents[3] = contents[100] = b"no image"
    with pytest.raises(DataError, match=r"2 of 199 images cannot be read.* 3\.png: is not an image"):
        evaluate(linear, Split(Files(contents), digits.labels[:199]), GREY, DIGITS)


def test_invalid_input_is_refused(split: Split, linear: nn.Module) -> None:
    with pytest.raises(DataError, match="empty"):
        evaluate(linear, split.subset(np.arange(0)), GREY, DIGITS)
    with pytest.raises(InputError, match="returns 10 scores per image, but there are 9 class names"):
        evaluate(linear, split, GREY, DIGITS[:9])
    with pytest.raises(InputError, match="batch size 0"):
        evaluate(linear, split, GREY, DIGITS, batch_size=0)
    with pytest.raises(InputError, match=r"returned \(899, 1, 8, 8\) for 899 images"):
        evaluate(nn.Identity(), split, GREY, DIGITS, batch_size=1000)
    nn.init.constant_(linear[1].bias, float("nan"))
    with pytest.raises(InputError, match=r"scores of digits\[0\] are NaN"):
        evaluate(linear, split, GREY, DIGITS)


def trained_vit(**info) -> ViT:
    model = vit().eval()
    model.info = ModelInfo(class_names=tuple(reversed(DIGITS)), preprocess=GREY, **info)
    return model


def data_set(digits: Digits) -> Dataset:
    sizes = {"val": 20, "test": 50}
    splits = {name: Split(ArrayImages(digits.pixels[:n], name), digits.labels[:n]) for name, n in sizes.items()}
    return Dataset("made", DIGITS, splits)


def test_evaluate_uses_the_models_preprocessing_and_matches_classes_by_name(digits: Digits, tmp_path: Path) -> None:
    model, data = trained_vit(), data_set(digits)
    expected = evaluate(model, Split(data.splits["test"].images, 9 - digits.labels[:50]), GREY, tuple(reversed(DIGITS)))
    folder = save_model(model, tmp_path / "model")
    for same in (model, folder, str(folder)):
        assert evaluate(same, data).to_dict() == expected.to_dict()
    assert expected.predictions.class_names[0] == "nine"


def test_evaluate_opens_data_by_name_and_takes_a_given_split(digits: Digits) -> None:
    numbered = vit().eval()
    numbered.info = ModelInfo(class_names=tuple("0123456789"), preprocess=GREY)
    assert (evaluate(numbered, "digits").n, evaluate(numbered, "digits", split="train").n) == (359, 1079)
    data = data_set(digits)
    assert [evaluate(trained_vit(), data, split=name).n for name in (None, "val", "test")] == [50, 20, 50]
    with pytest.raises(UnknownNameError, match="split of made 'tset'"):
        evaluate(trained_vit(), data, split="tset")


def test_evaluate_needs_preprocessing_and_class_names(linear: nn.Module, split: Split) -> None:
    with pytest.raises(
        WeightsError, match=r"the model has no preprocessing.*--preprocess FILE \(preprocess= in Python\)"
    ):
        evaluate(linear, split)
    with pytest.raises(WeightsError, match=r"has no class names.*--class-names FILE \(class_names= in Python\)"):
        evaluate(linear, split, GREY)


def test_a_val_split_that_may_hold_training_images_is_refused(digits: Digits) -> None:
    """`open_data` drew the split, and the model was trained with another one: the split must be named."""
    splits = data_set(digits).splits
    data = Dataset("made", DIGITS, {"train": splits["test"], "val": splits["val"]}, val_was_drawn=True)
    with pytest.raises(DataError, match=r"its val split was drawn when it was opened.* or split=\"val\""):
        evaluate(trained_vit(data={"fingerprint": "another"}), data)
    assert evaluate(trained_vit(data={"fingerprint": "another"}), data, split="val").n == 20
    assert evaluate(trained_vit(data={"fingerprint": data.fingerprint}), data).n == 20
    assert evaluate(trained_vit(), data).n == 20


def test_evaluate_passes_on_the_limit_of_corrupt_images(digits: Digits, linear: nn.Module) -> None:
    contents = [png(p) for p in digits.pixels[:10]]
    contents[3] = b"no image"
    files = Split(Files(contents), digits.labels[:10])
    assert evaluate(linear, files, GREY, DIGITS, corrupt_limit=0.1).n == 9
