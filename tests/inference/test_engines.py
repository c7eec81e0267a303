from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.inference.conftest import PREPROCESS, small_model
from vitkit.data.preprocess import Preprocess
from vitkit.errors import InputError, WorkError
from vitkit.inference import Predictor, autotune
from vitkit.inference.autotune import choose
from vitkit.inference.engines import compiled_path, make_engine
from vitkit.model import create_model
from vitkit.runtime.timing import Run
from vitkit.weights.state_dict import hash_weights


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VITKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_a_model_runs_in_another_runtime_and_the_second_start_finds_it_ready(
    name: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")
    model = small_model()
    expected = make_engine("eager", model, PREPROCESS)(pixels(3))
    np.testing.assert_allclose(make_engine(name, model, PREPROCESS)(pixels(3)), expected, rtol=0, atol=1e-5)

    def never(*_: object) -> None:
        raise AssertionError("written a second time")

    monkeypatch.setitem(__import__("vitkit.inference.engines", fromlist=["WRITERS"]).WRITERS, name, never)
    np.testing.assert_allclose(make_engine(name, model, PREPROCESS)(pixels(3)), expected, rtol=0, atol=1e-5)
    model.head.bias.data += 1
    with pytest.raises(AssertionError, match="a second time"):
        make_engine(name, model, PREPROCESS)
    assert not list(cache.rglob("new.*"))


@pytest.mark.slow
def test_compiled_gives_the_logits_of_the_model_and_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(depth=1)
    expected = make_engine("eager", model, PREPROCESS)(pixels(5))
    engine = make_engine("compiled", model, PREPROCESS)
    for count in (1, 5):
        np.testing.assert_allclose(engine(pixels(5)[:count]), expected[:count], rtol=0, atol=1e-5)
    monkeypatch.setattr("vitkit.inference.engines._compile", None)
    np.testing.assert_allclose(make_engine("compiled", model, PREPROCESS)(pixels(5)), expected, rtol=0, atol=1e-5)
    with pytest.raises(InputError, match="compiled for"):
        engine(np.zeros((1, 24, 16, 3), np.uint8))


def test_what_cannot_be_compiled_says_so_in_one_line(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no working C++ compiler\nand a page of more")

    monkeypatch.setattr("torch.export.export", fails)
    with pytest.raises(WorkError, match=r"cannot be compiled here \(no working C\+\+ compiler\): use --engine eager"):
        make_engine("compiled", small_model(), PREPROCESS)
    assert not [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.parametrize("images", [None, 1, 1_000])
def test_little_work_starts_at_once(images: int | None, cache: Path) -> None:
    base = create_model("vit_base_patch16_224", device="meta")  # nothing can be prepared for it, nor timed
    assert choose(base, Preprocess(), images, batch=8).engine.name == "eager"
    assert not cache.exists()


def test_much_work_gets_the_fastest_engine_by_a_trial_that_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")
    monkeypatch.setattr(
        "vitkit.inference.autotune.bf16_inference_pays", lambda device: False
    )  # a compilation takes a minute
    model, trials = small_model(), []
    measure = autotune.time_calls

    def noted(runs: Mapping[str, Run], rounds: int) -> dict[str, list[float]]:
        trials.append(sorted(runs))
        return measure(runs, rounds) | {"onnx": [1e-9]}

    monkeypatch.setattr("vitkit.inference.autotune.time_calls", noted)
    for _ in range(2):
        choice = choose(model, PREPROCESS, 10**9, batch=4)
        assert choice.engine.name == "onnx fp32"
        assert choice.why.endswith("by a trial of eager, onnx, openvino in batches of 4")
    assert trials == [["eager", "onnx", "openvino"]]


def test_whoever_cannot_be_prepared_stays_out_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitkit.inference.autotune._rivals", lambda device: ["compiled"])

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no working C++ compiler")

    monkeypatch.setattr("torch.export.export", fails)
    choice = choose(small_model(), PREPROCESS, 10**9, batch=1)
    assert (choice.engine.name, choice.why) == (
        "eager",
        "nothing is faster, by a trial of eager in batches of 1",
    )


def test_a_cache_that_cannot_be_written_costs_a_choice_and_no_error(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    choice = choose(small_model(), PREPROCESS, 10**9, batch=1)
    assert choice.engine.name == "eager"


def test_auto_says_what_it_picked() -> None:
    assert Predictor(small_model(), images=1).chosen == "eager: 1 image, ready at once"
    assert Predictor(small_model(), "eager").chosen == "eager: as asked"


def test_a_compilation_is_found_again_only_for_the_same_weights_and_size() -> None:
    model = small_model()
    first = compiled_path(model, PREPROCESS)
    assert compiled_path(small_model(), PREPROCESS) == first
    assert compiled_path(model, PREPROCESS.replace(size=24)) != first
    digest = hash_weights(model)
    model.head.bias.data[0] += 1e-7
    assert hash_weights(model) != digest
    assert compiled_path(model, PREPROCESS) != first
