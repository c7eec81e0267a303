import numpy as np
import pytest

from tests.bench import TINY
from vitkit.bench import bench_inference, inference
from vitkit.bench.inference import InferenceJob, competitors, with_class_names
from vitkit.errors import UnknownNameError, WorkError
from vitkit.model import create_model


def test_an_engine_that_cannot_be_prepared_is_reported_and_the_others_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = inference.prepare

    def no_compiler(name: str, job: InferenceJob) -> object:
        if name == "vitkit compiled":
            raise WorkError("the model cannot be compiled here: use --engine eager")
        return original(name, job)

    monkeypatch.setattr(inference, "prepare", no_compiler)
    results, missing = bench_inference(create_model(TINY), batch_size=1, against=[], rounds=1, memory=False)
    assert [result.name for result in results] == ["vitkit auto", "vitkit eager"]
    assert "cannot be compiled" in missing["vitkit compiled"]


def test_libraries_run_with_defaults_and_with_their_best_settings() -> None:
    assert competitors(["timm", "onnxruntime"])[3:] == ["timm default", "timm best", "onnxruntime"]
    with pytest.raises(UnknownNameError, match="timm"):
        competitors(["tim"])


def test_every_competitor_gets_the_same_images() -> None:
    job = InferenceJob(with_class_names(create_model(TINY)), batch_size=3)
    assert job.pixels().shape == (3, 32, 32, 3)
    assert np.array_equal(job.pixels(), job.pixels())
    assert job.model.info.class_names == tuple("0123456789")
