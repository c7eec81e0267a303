from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.inference.conftest import PREPROCESS, small_model
from vitkit.data.preprocess import Preprocess
from vitkit.inference import Predictor, autotune
from vitkit.inference.autotune import choose_engine
from vitkit.model import create_model
from vitkit.runtime.timing import Run

pytestmark = pytest.mark.usefixtures("engine_cache")


@pytest.mark.parametrize("images", [None, 1, 1_000])
def test_small_jobs_use_the_eager_engine(images: int | None, engine_cache: Path) -> None:
    base = create_model("vit_base_patch16_224", device="meta")  # neither prepared nor timed: it has no weights
    assert choose_engine(base, Preprocess(), images, batch_size=8).engine.name == "eager"
    assert not engine_cache.exists()


def test_large_jobs_use_the_fastest_engine_of_a_trial_whose_result_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
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
        choice = choose_engine(model, PREPROCESS, 10**9, batch_size=4)
        assert choice.engine.name == "onnx fp32"
        assert choice.reason.endswith("in a trial of eager, onnx, openvino with batches of 4")
    assert trials == [["eager", "onnx", "openvino"]]


def test_engines_that_cannot_be_prepared_are_left_out_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitkit.inference.autotune._candidates", lambda device: ["compiled"])

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no working C++ compiler")

    monkeypatch.setattr("torch.export.export", fails)
    choice = choose_engine(small_model(), PREPROCESS, 10**9, batch_size=1)
    assert (choice.engine.name, choice.reason) == (
        "eager",
        "no other engine is faster in a trial of eager with batches of 1",
    )


def test_an_unwritable_cache_is_no_error(engine_cache: Path) -> None:
    engine_cache.write_text("not a folder", encoding="utf-8")
    choice = choose_engine(small_model(), PREPROCESS, 10**9, batch_size=1)
    assert choice.engine.name == "eager"


def test_the_predictor_describes_its_engine() -> None:
    assert Predictor(small_model(), expected_images=1).engine_description == "eager: 1 image, ready at once"
    assert Predictor(small_model(), "eager").engine_description == "eager: as requested"
