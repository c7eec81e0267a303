from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.inference.conftest import PREPROCESS, small_model
from vitkit.data.preprocess import Preprocess
from vitkit.inference import Predictor, autotune
from vitkit.inference.autotune import choose_engine
from vitkit.inference.engines import ENGINES, Engine, make_engine
from vitkit.model import ViT, create_model
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
        assert (
            "in a trial of eager, onnx, openvino with batches of 4; scores differ from eager by up to" in choice.reason
        )
        assert choice.reason.endswith(", bound 0.0001")
    assert trials == [["eager", "onnx", "openvino"]]


def test_engines_that_cannot_be_prepared_are_left_out_of_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitkit.inference.autotune._candidates", lambda device: ["compiled"])

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no working C++ compiler")

    monkeypatch.setattr("torch.export.export", fails)
    choice = choose_engine(small_model(), PREPROCESS, 10**9, batch_size=1)
    assert (choice.engine.name, choice.reason) == (
        "eager",
        "no other engine is better in a trial of eager with batches of 1",
    )


def test_an_unwritable_cache_is_no_error(engine_cache: Path) -> None:
    engine_cache.write_text("not a folder", encoding="utf-8")
    choice = choose_engine(small_model(), PREPROCESS, 10**9, batch_size=1)
    assert choice.engine.name == "eager"


def test_the_predictor_describes_its_engine() -> None:
    assert Predictor(small_model(), expected_images=1).engine_description == "eager: 1 image, ready at once"
    assert Predictor(small_model(), "eager").engine_description == "eager: as requested"


class Shifted:
    """Returns eager's logits plus a number for the first class."""

    def __init__(self, name: str, model: ViT, by: float) -> None:
        self.name, self.eager, self.by = name, make_engine("eager", model, PREPROCESS), by

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        logits = self.eager(pixels)
        logits[:, 0] += self.by
        return logits


@pytest.mark.parametrize(
    ("name", "by", "chosen"),
    [
        ("compiled bf16", 0.01, "compiled bf16"),
        ("compiled bf16", 0.1, "eager"),
        ("compiled bf16", float("nan"), "eager"),
        ("compiled fp32", 0.01, "eager"),
    ],
)
def test_another_precision_is_used_only_within_a_bound_that_is_printed(
    name: str, by: float, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model()
    monkeypatch.setattr("vitkit.inference.autotune._candidates", lambda device: ["compiled"])
    monkeypatch.setitem(ENGINES, "compiled", lambda *_: Shifted(name, model, by))
    monkeypatch.setattr(
        "vitkit.inference.autotune.time_calls", lambda runs, rounds: {"eager": [1.0], "compiled": [0.5]}
    )
    for _ in range(2):  # measured, then remembered
        choice = choose_engine(model, PREPROCESS, 10**9, batch_size=1)
        assert choice.engine.name == chosen
        left_out = "compiled is left out: scores differ from eager by up to"
        assert ("bound 0.01" if chosen != "eager" else left_out) in choice.reason


def test_a_remembered_engine_that_no_longer_works_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    monkeypatch.setattr("vitkit.inference.autotune._candidates", lambda device: ["compiled"])
    monkeypatch.setitem(ENGINES, "compiled", lambda *_: Shifted("compiled fp32", model, 0.0))
    monkeypatch.setattr(
        "vitkit.inference.autotune.time_calls", lambda runs, rounds: {"eager": [1.0], "compiled": [0.5]}
    )
    assert choose_engine(model, PREPROCESS, 10**9, batch_size=1).engine.name == "compiled fp32"

    def fails(*_: object) -> Engine:
        raise RuntimeError("the file in the cache is damaged")

    monkeypatch.setitem(ENGINES, "compiled", fails)
    choice = choose_engine(model, PREPROCESS, 10**9, batch_size=1)
    assert choice.engine.name == "eager"
    assert choice.reason.endswith("; compiled, remembered as faster, cannot be started now")


def test_a_damaged_trial_is_measured_again(engine_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitkit.inference.autotune._candidates", lambda device: ["compiled"])
    monkeypatch.setitem(ENGINES, "compiled", lambda model, _: Shifted("compiled fp32", model, 0.0))
    for content in ("{", "[]", '{"eager": 1.0}', ""):
        choose_engine(small_model(), PREPROCESS, 10**9, batch_size=1)
        (trial,) = engine_cache.rglob("*.json")
        trial.write_text(content, encoding="utf-8")
    assert choose_engine(small_model(), PREPROCESS, 10**9, batch_size=1).engine.name in ("eager", "compiled fp32")


def test_trials_depend_on_threads_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    model, paths = small_model(), set()

    def path() -> Path:
        return autotune._trial_path(model, PREPROCESS, 1, ["onnx"])

    assert path() == path()
    paths.add(path())
    for target, value in (
        ("torch.get_num_threads", lambda: 77),
        ("vitkit.inference.engines.omp_threads", lambda: 77),
        ("vitkit.inference.engines._version", lambda package: "77.0"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(target, value)
            paths.add(path())
    assert len(paths) == 4
