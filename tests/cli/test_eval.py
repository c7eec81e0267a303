"""`vitkit eval`: which images are evaluated, and what is refused before the work."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vitkit
from tests.data.small_data import picture
from vitkit.cli.main import main
from vitkit.data.open import open_data
from vitkit.data.preprocess import Preprocess
from vitkit.model import ModelInfo, create_model
from vitkit.weights.model_dir import save_model

SEEN = Preprocess(size=8, channels=1, crop_fraction=1.0, mean=(0.3,), std=(0.4,))
NAMES = ("dark", "light")


def photographs(folder: Path, seed: int) -> Path:
    draw = np.random.default_rng(seed)
    for k, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            pixels = draw.integers(100 * k, 100 * k + 100, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def model(folder: Path, trained_on: Path | None) -> str:
    recipe, data = {}, {}
    if trained_on:
        recipe = {"seed": 3, "val_fraction": 0.2, "data": str(trained_on)}
        data = {"fingerprint": open_data(trained_on, seed=3, val_fraction=0.2).fingerprint}
    vit = create_model("vit_digits_patch2_8", num_classes=2, seed=0).eval()
    return str(save_model(vit, folder, ModelInfo(NAMES, SEEN, recipe=recipe, data=data)))


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return photographs(tmp_path / "known", 0)


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, int, str]:
    assert main(["eval", *words, "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    return answer["split"], answer["n"], said.err


def test_all_images_are_evaluated_if_the_model_was_not_trained_on_them(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = photographs(tmp_path / "other", 1)
    split, n, said = evaluated(capsys, model(tmp_path / "m", known), str(other))
    assert (split, n) == ("all", 40)
    assert "other has no splits and the model was not trained on it: all of its images are evaluated" in said
    split, n, _ = evaluated(capsys, model(tmp_path / "foreign", None), str(other), "--temperature")
    assert (split, n) == ("all", 40)


def test_of_its_training_images_only_the_validation_split_is_evaluated_from_any_folder(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = shutil.copytree(known, tmp_path / "elsewhere")
    for place in (known, copied):
        split, n, said = evaluated(capsys, model(tmp_path / "m", known), str(place))
        assert (split, n) == ("val", 8)
        assert "8 of the 40 train images were set aside as val" in said


def test_training_images_of_the_other_model_are_not_evaluated(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, theirs = model(tmp_path / "mine", None), model(tmp_path / "theirs", known)
    assert evaluated(capsys, mine, str(known), "--against", theirs)[0] == "val"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A run on 40 photographs without splits, and their folder."""
    place = tmp_path_factory.mktemp("trained")
    data, run = photographs(place / "photos", 0), str(place / "run")
    quick = [
        "--model",
        "vit_digits_patch2_8",
        "--epochs",
        "1",
        "--set",
        "preprocess.size=8",
        "--set",
        "machine.threads=1",
    ]
    assert main(["train", str(data), "--out", run, *quick, "--set", "val_fraction=0.2"]) == 0
    return run, data


def more(data: Path, place: Path) -> Path:
    """Copy the folder, with one more photograph."""
    copied = shutil.copytree(data, place)
    Image.fromarray(np.full((8, 8), 7, np.uint8)).save(copied / "dark" / "new.png")
    return copied


def test_training_images_are_recognised_in_a_copy_with_another_image(
    tmp_path: Path, trained: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = trained
    assert evaluated(capsys, run, str(data))[:2] == ("val", 8)
    assert main(["eval", run, str(more(data, tmp_path / "more")), "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert (answer["split"], answer["n"]) == ("unseen", 9)
    assert answer["overlap"] == {"train": 0, "val": 8, "left_out": 32}
    assert "trained on 32 of the 41 images of more, which are left out: the other 9 are evaluated" in said.err
    assert vitkit.evaluate(run, tmp_path / "more").to_dict()["overlap"] == answer["overlap"]


def test_an_image_that_is_added_to_the_training_folder_does_not_move_training_images_into_val(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = photographs(tmp_path / "photos", 2), str(tmp_path / "run")
    quick = ["--model", "vit_digits_patch2_8", "--epochs", "1", "--set", "preprocess.size=8"]
    assert main(["train", str(data), "--out", run, *quick]) == 0
    for i in range(10):  # now val would have 3 photographs of this class
        Image.fromarray(np.full((8, 8), i, np.uint8)).save(data / "dark" / f"new{i}.png")
    capsys.readouterr()
    assert evaluated(capsys, run, str(data))[:2] == ("unseen", 14)


def test_training_images_in_a_split_of_the_data_are_counted(
    tmp_path: Path, trained: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = trained
    (tmp_path / "split").mkdir()
    shutil.copytree(data, tmp_path / "split" / "test")
    assert main(["eval", run, str(tmp_path / "split"), "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert (answer["n"], answer["overlap"]) == (40, {"train": 32, "val": 8, "left_out": 0})
    assert answer["notes"] == ["the model was trained on 32 of the 40 images that are evaluated: it knows them"]
    assert answer["notes"][0] in said.err


def test_a_data_set_of_training_images_only_is_refused(
    tmp_path: Path, trained: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, data = trained
    for path in (tmp_path / name for name in NAMES):
        path.mkdir()
    train = open_data(data, val_fraction=0.2).splits["train"]
    for i in range(len(train)):
        shutil.copy(train.images.name(i), tmp_path / NAMES[train.labels[i]] / f"{i}.png")
    assert main(["eval", run, str(tmp_path)]) == 2
    assert "the model was trained on all 32 images" in capsys.readouterr().err


def test_numbers_are_matched_with_class_names_that_are_numbers(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folders 1 and 2 are the class indices 0 and 1; a CSV that says 1 and 2 has these classes."""
    vit = create_model("vit_digits_patch2_8", num_classes=2, seed=0).eval()
    weights = str(save_model(vit, tmp_path / "m", ModelInfo(("1", "2"), SEEN)))

    def labels(first: int) -> list[int]:
        rows = [f"{path},{first + NAMES.index(path.parent.name)}" for path in sorted(known.glob("*/*.png"))]
        (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(rows), encoding="utf-8")
        return [row["support"] for row in answer(str(tmp_path / "list.csv"))["per_class"]]

    def answer(data: str) -> dict[str, Any]:
        assert main(["eval", weights, data, "--json"]) == 0
        said.append(capsys.readouterr())
        return json.loads(said[-1].out)

    said: list[Any] = []
    assert labels(1) == [20, 20]
    assert "are matched with the model's class names: 1 is not a class index" in said[-1].err
    assert labels(0) == [20, 20]
    assert "are class indices, not the model's class names" in said[-1].err
    assert "0 is not one of them" in said[-1].err


def test_whole_numbers_need_no_class_names(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DeiT's weights have no class names; the labels of the table are ImageNet's indices."""
    weights = shared_data / "deit_tiny_patch16_224_in1k.safetensors"
    if not weights.is_file():
        pytest.skip(f"no weights at {weights}")
    pyarrow = pytest.importorskip("pyarrow", reason="pip install 'vitkit[data]'")
    from pyarrow import parquet

    images = [picture(i) for i in range(4)]
    deit = vitkit.load_model(weights)
    assert deit.info.preprocess is not None
    predicted = deit(deit.info.preprocess.normalize(deit.info.preprocess.batch(images))).argmax(dim=1)
    labels = [*predicted.tolist()[:3], 999]
    parquet.write_table(pyarrow.table({"image": images, "label": labels}), tmp_path / "val.parquet")
    assert main(["eval", str(weights), str(tmp_path / "val.parquet"), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["top1"] == 0.75
    assert "has no class names: the labels of val are taken as its class indices" in said.err
    assert vitkit.evaluate(weights, tmp_path / "val.parquet").top1 == 0.75
    parquet.write_table(pyarrow.table({"image": images, "label": list("abcd")}), tmp_path / "val.parquet")
    assert main(["eval", str(weights), str(tmp_path / "val.parquet")]) == 2
    assert "has no class names" in capsys.readouterr().err


def test_a_split_can_be_chosen(tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated(capsys, model(tmp_path / "m", None), str(known), "--split", "val")[:2] == ("val", 4)


def test_sizes_that_the_patch_does_not_divide_are_refused_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", model(tmp_path / "m", None), str(tmp_path / "nothing"), "--sizes", "8", "9"]) == 2
    assert "--sizes 9: must be a multiple of the patch size, 2×2 pixels" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--knn", "9"], ["--knn"]])
def test_knn_needs_no_classifier(
    tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    vit = create_model("vit_digits_patch2_8", num_classes=0, seed=0)
    weights = str(save_model(vit, tmp_path / "m", ModelInfo(preprocess=SEEN)))
    assert main(["eval", weights, str(known), "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["split"], found["n"], found["top1"]) == ("val", 4, 1.0)
    assert found["top1_interval"][0] < 1
    if "9" in words:
        assert found["k"] == 9
        assert "left_out_top1" not in found
    else:
        assert found["left_out_top1"] > 0.9


def test_knn_refuses_incompatible_options(tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = model(tmp_path / "m", None)
    assert main(["eval", weights, str(known), "--knn", "3", "5"]) == 2
    assert main(["eval", weights, str(known), "--knn", "--temperature"]) == 2
    assert "--knn takes one number above 0 or none" in capsys.readouterr().err


def test_out_names_the_files_that_were_written(tmp_path: Path, known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "eval"
    assert main(["eval", model(tmp_path / "m", None), str(known), "--out", str(out), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(map(Path, answer["files"].values())) == set(out.iterdir())
    rows = (out / "predictions.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == answer["n"] == 40
    assert all(Path(row.split(",")[0]).is_file() for row in rows)
