"""`vitkit eval A DATA --against B`: is A significantly better than B?"""

import json
from pathlib import Path

import pytest
import torch

from vitkit.cli.main import main
from vitkit.data.open import open_data
from vitkit.data.preprocess import Preprocess
from vitkit.evaluation import compare, predict_split
from vitkit.model import ModelInfo, create_model
from vitkit.weights.load import load_model
from vitkit.weights.model_dir import save_model

SEEN = Preprocess(size=8, channels=1, crop_fraction=1.0, mean=(0.3,), std=(0.4,))


def random_features(folder: Path, images: int, split_seed: int) -> str:
    """Save a weak classifier: random features with a head fitted by least squares to some of the digits."""
    data = open_data("digits")
    model = create_model("vit_digits_patch2_8", num_classes=10, in_channels=1, image_size=8, seed=0).eval()
    train, seen = data.splits["train"], []
    model.head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    with torch.inference_mode():
        model(SEEN.normalize(SEEN.batch(train.images[i] for i in range(images))))
        wanted = torch.nn.functional.one_hot(torch.from_numpy(train.labels[:images]), 10).float()
        model.head.weight.copy_(torch.linalg.lstsq(seen[0], wanted).solution.T)
    made = {"seed": split_seed, "val_fraction": 0.1}
    return str(save_model(model, folder, ModelInfo(data.class_names, SEEN, recipe=made)))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One model fitted to many images, one to few and with another validation split."""
    folder = tmp_path_factory.mktemp("models")
    return random_features(folder / "many", 1000, 0), random_features(folder / "few", 100, 5)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["eval", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_numbers_are_those_of_the_paired_test(models: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    many, few = models
    found = answer(capsys, many, "digits", "--against", few)["against"]
    test = open_data("digits").splits["test"]
    a, b = (predict_split(load_model(m), test, SEEN, open_data("digits").class_names) for m in (few, many))
    expected = compare(a, b)
    assert found["difference"] == expected.difference > 0.02
    assert found["p_value"] == expected.p_value < 0.01
    assert found["interval"] == list(expected.interval)
    assert found["model"] == few
    assert "caution" not in found
    assert f"{many} ({expected.top1_b:.2%}) is better than {few} ({expected.top1_a:.2%}) on these 359" in found["words"]
    assert "is significant at the 5% level" in found["words"]


def test_the_summary_is_printed(models: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    many, few = models
    assert main(["eval", few, "digits", "--against", many]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{few} (" in said
    assert "is worse than" in said
    assert "McNemar's exact test" in said


def test_a_model_is_as_good_as_itself(models: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, models[0], "digits", "--against", models[0])["against"]
    assert (found["difference"], found["p_value"], found["interval"]) == (0, 1, [0, 0])
    assert "is as good as" in found["words"]
    assert "is not significant at the 5% level" in found["words"]


def test_a_val_split_that_the_other_model_was_not_trained_with_is_reported(
    models: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Digits bring a val split of their own; arrays without one get one drawn by the first model's seed."""
    import numpy as np

    many, few = models
    assert "caution" not in answer(capsys, many, "digits", "--against", few, "--split", "val")["against"]
    train = open_data("digits").splits["train"]
    pixels = np.stack([train.images[i] for i in range(200)])
    np.savez(tmp_path / "some.npz", train_images=pixels, train_labels=train.labels[:200])
    found = answer(capsys, many, str(tmp_path / "some.npz"), "--against", few, "--split", "val")["against"]
    assert (
        found["caution"] == f"{few} was trained with another validation split: it may have been trained on these images"
    )
