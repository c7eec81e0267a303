from pathlib import Path

import numpy as np
import pytest

from tests.inference.conftest import PREPROCESS, small_model
from vitkit.errors import InputError, WorkError
from vitkit.inference.engines import WRITERS, compiled_path, make_engine
from vitkit.weights.state_dict import hash_weights

pytestmark = pytest.mark.usefixtures("engine_cache")


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_a_model_is_converted_for_another_runtime_once(
    name: str, engine_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript", reason="pip install 'vitkit[export]'")
    model = small_model()
    expected = make_engine("eager", model, PREPROCESS)(pixels(3))
    np.testing.assert_allclose(make_engine(name, model, PREPROCESS)(pixels(3)), expected, rtol=0, atol=1e-5)

    def never(*_: object) -> None:
        raise AssertionError("written a second time")

    monkeypatch.setitem(WRITERS, name, never)
    np.testing.assert_allclose(make_engine(name, model, PREPROCESS)(pixels(3)), expected, rtol=0, atol=1e-5)
    model.head.bias.data += 1
    with pytest.raises(AssertionError, match="a second time"):
        make_engine(name, model, PREPROCESS)
    assert not list(engine_cache.rglob("new.*"))


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


def test_a_failed_compilation_is_a_one_line_error_and_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, engine_cache: Path
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no working C++ compiler\nand a page of more")

    monkeypatch.setattr("torch.export.export", fails)
    with pytest.raises(WorkError, match=r"cannot be compiled here \(no working C\+\+ compiler\): use --engine eager"):
        make_engine("compiled", small_model(), PREPROCESS)
    assert not [path for path in engine_cache.rglob("*") if path.is_file()]


def test_a_compiled_model_is_reused_only_for_the_same_weights_and_size() -> None:
    model = small_model()
    first = compiled_path(model, PREPROCESS)
    assert compiled_path(small_model(), PREPROCESS) == first
    assert compiled_path(model, PREPROCESS.replace(size=24)) != first
    digest = hash_weights(model)
    model.head.bias.data[0] += 1e-7
    assert hash_weights(model) != digest
    assert compiled_path(model, PREPROCESS) != first


def test_compiled_code_depends_on_the_number_of_threads_and_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    first = compiled_path(model, PREPROCESS)
    with monkeypatch.context() as patch:
        patch.setattr("torch.get_num_threads", lambda: 77)
        assert compiled_path(model, PREPROCESS) != first
    monkeypatch.setattr("vitkit.inference.engines.machine", lambda model: ("another device",))
    assert compiled_path(model, PREPROCESS) != first
